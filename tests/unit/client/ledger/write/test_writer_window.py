"""A writer beside others has unconfirmed only what is confirmed within the target."""

from __future__ import annotations

from collections import deque

import pytest

from client.ledger.write.writer_room import ActiveWriters, WriterWindow

MAX = 16_000_000
MIN = 1_000_000


def window(active_writers: ActiveWriters) -> WriterWindow:
    return WriterWindow(active_writers, MAX, shared_bytes_min=MIN, target_s=0.01)


def meet(active_writers: ActiveWriters, now_s: float) -> None:
    """Somebody adds who adds little."""
    active_writers.last_little_s = now_s


def confirm(busy: WriterWindow, bytes_per_s: int, *, begin_s: float, seconds: float = 1.0) -> None:
    for at in range(int(seconds * 1000)):
        now_s = begin_s + at / 1000
        busy.on_confirmed(int(now_s * bytes_per_s), now_s)


class Company:
    """Writers of one process that add in turns, each at a rate of its own."""

    def __init__(self, *bytes_per_s: int) -> None:
        self.active_writers = ActiveWriters()
        self.writers = [window(self.active_writers) for _ in bytes_per_s]
        self._bytes_per_s = bytes_per_s
        self._pushed_bytes = [0] * len(bytes_per_s)
        self.now_s = 100.0

    def run(self, seconds: float) -> list[bool]:
        """Return which of them share."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.1
            for at, writer in enumerate(self.writers):
                self._pushed_bytes[at] += self._bytes_per_s[at] // 10
                writer.on_others(self._pushed_bytes[at], self.now_s)
        return [writer.is_shared for writer in self.writers]

    def roll(self, at: int) -> None:
        """The next ledger of one of them begins."""
        self.writers[at] = window(self.active_writers)
        self._pushed_bytes[at] = 0


def test_a_writer_alone_has_the_whole_window() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    busy.on_others(1_000, 100.0)
    assert active_writers.current is busy
    assert busy.size == MAX
    confirm(busy, 200_000_000, begin_s=100.0)
    assert busy.size == MAX


def test_writers_that_are_equally_busy_have_whole_windows_once_that_is_known() -> None:
    company = Company(*[5_000_000] * 16)
    assert all(company.run(2.9)), "they meet"
    assert not any(company.run(0.3))
    assert not any(company.run(20.0))
    assert {writer.size for writer in company.writers} == {MAX}


def test_some_that_are_a_little_busier_make_nobody_share() -> None:
    assert not any(Company(40_000_000, 7_000_000, 6_000_000).run(20.0))


def test_who_adds_an_eighth_of_the_busiest_makes_all_share() -> None:
    company = Company(40_000_000, 30_000_000, 5_000_000)
    company.run(0.2)
    for _ in range(200):
        assert all(company.run(0.1)), "first they meet, then it is known"
    assert all(writer.size < MAX for writer in company.writers)


def test_who_adds_little_among_others_that_do_makes_nobody_share() -> None:
    assert not any(Company(*[1_000] * 5).run(20.0))


def test_two_that_were_alone_meet_again() -> None:
    company = Company(40_000_000, 40_000_000)
    assert not any(company.run(10.0))
    company.now_s += 5.1
    assert all(company.run(2.9))
    assert not any(company.run(0.3)), "over the pause they had added little, and only then"


def test_who_begins_where_another_ends_meets_nobody() -> None:
    active_writers = ActiveWriters()
    for number in range(20):
        rolled = window(active_writers)
        rolled.on_others(1_000_000, 100.0 + number)
        assert rolled.size == MAX


def test_who_becomes_busy_does_not_make_others_share_any_longer() -> None:
    company = Company(40_000_000, 1_000)
    assert all(company.run(10.0))
    company._bytes_per_s = (40_000_000, 40_000_000)
    assert all(company.run(4.0)), "it counts for five seconds"
    assert not any(company.run(4.0))


def test_who_was_busy_and_adds_little_now_makes_others_share() -> None:
    company = Company(40_000_000, 40_000_000)
    assert not any(company.run(10.0))
    company._bytes_per_s = (40_000_000, 1_000)
    assert all(company.run(3.0))


def test_the_busiest_counts_for_as_long_as_it_is_busy_and_a_span_more() -> None:
    company = Company(40_000_000, 1_000_000, 1_000_000)
    assert all(company.run(10.0))
    company._bytes_per_s = (1_000_000, 1_000_000, 1_000_000)
    company.run(10.0)
    assert not any(company.run(6.0))


def test_the_next_ledger_of_a_busy_partition_adds_not_little() -> None:
    company = Company(40_000_000, 40_000_000)
    company.run(10.0)
    for _ in range(20):
        company.roll(1)
        assert not any(company.run(0.5)), "it has no rate yet"


def test_the_next_ledger_beside_somebody_who_adds_little_shares_from_its_first_entry_on() -> None:
    company = Company(40_000_000, 1_000)
    company.run(10.0)
    company.roll(0)
    assert all(company.run(0.1))
    assert company.writers[0].size == MIN


def test_a_writer_in_company_has_what_is_confirmed_within_the_target() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    meet(active_writers, 100.0)
    confirm(busy, 200_000_000, begin_s=100.0)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 400_000_000, begin_s=101.0)
    assert busy.size == pytest.approx(4_000_000, rel=0.01)


def test_never_less_than_the_least_and_never_more_than_alone() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    meet(active_writers, 100.0)
    confirm(busy, 1_000, begin_s=100.0)
    assert busy.size == MIN
    confirm(busy, 10_000_000_000, begin_s=101.0)
    assert busy.size == MAX


def test_company_that_went_away_is_forgotten_and_one_record_a_second_is_company() -> None:
    active_writers = ActiveWriters()
    busy, quiet = window(active_writers), window(active_writers)
    for second in range(100, 113):
        quiet.on_others(1_000 * (second - 99), second)
        busy.on_others(200_000_000 * (second - 99), second + 0.5)
        confirm(busy, 200_000_000, begin_s=second + 0.5, seconds=0.5)
        if second >= 103:
            assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 200_000_000, begin_s=116.0, seconds=0.9)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 200_000_000, begin_s=118.0)
    assert busy.size == MAX


def test_confirmed_bytes_are_measured_over_an_interval_and_not_from_one_to_the_next() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    meet(active_writers, 100.0)
    busy.on_confirmed(0, 100.0)
    busy.on_confirmed(5_000_000, 100.001)
    assert busy.size == MIN, "a burst is no rate"
    busy.on_confirmed(5_000_000, 100.025)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)


class Bookies:
    """Confirm one entry after the other at a rate, and none sooner than after some time."""

    def __init__(self, busy: WriterWindow, *, bytes_per_s: float, least_s: float) -> None:
        self._busy = busy
        self._bytes_per_s = bytes_per_s
        self._least_s = least_s
        self.now_s = 100.0
        self.waited_s = 0.0
        """How long the last entry waited behind others."""
        self._pushed_bytes = self._confirmed_bytes = 0
        self._free_s = self.now_s
        self._under_way: deque[tuple[float, int]] = deque()

    def _push(self, entry_bytes: int) -> None:
        self._pushed_bytes += entry_bytes
        if self._busy.wants_time:
            self._busy.begin(self._pushed_bytes, self.now_s)
        self.waited_s = max(0.0, self._free_s - self.now_s)
        self._free_s = self.now_s + self.waited_s + entry_bytes / self._bytes_per_s
        self._under_way.append((self._free_s + self._least_s, self._pushed_bytes))

    def run(
        self, seconds: float, active_writers: ActiveWriters, *, entry_bytes: int = 100_000
    ) -> float:
        """Write as fast as it goes beside somebody else; return the bytes/s of the last half."""
        end_s, marks = self.now_s + seconds, [0, 0]
        while self.now_s < end_s:
            meet(active_writers, self.now_s)
            while self._pushed_bytes - self._confirmed_bytes < self._busy.size:
                self._push(entry_bytes)
            self.now_s, self._confirmed_bytes = self._under_way.popleft()
            self._busy.on_confirmed(self._confirmed_bytes, self.now_s)
            marks[self.now_s > end_s - seconds / 2] = self._confirmed_bytes
        return (marks[1] - marks[0]) / (seconds / 2)


@pytest.mark.parametrize("least_s", [0.001, 0.01, 0.03])
def test_bookies_that_need_long_for_each_are_kept_busy_and_no_more(least_s: float) -> None:
    """Their syncs last longer than the target: less than they can do would be of use to nobody."""
    active_writers = ActiveWriters()
    busy = WriterWindow(active_writers, MAX, shared_bytes_min=200_000, target_s=0.002)
    bookies = Bookies(busy, bytes_per_s=200_000_000, least_s=least_s)
    found = bookies.run(10.0, active_writers)
    assert found > 0.9 * 200_000_000
    assert bookies.waited_s < 0.002 + 0.5 * least_s


def test_a_moment_that_was_slow_does_not_widen_the_window_and_a_slow_disk_does_in_the_end() -> None:
    active_writers = ActiveWriters()
    busy = WriterWindow(active_writers, MAX, shared_bytes_min=200_000, target_s=0.002)
    bookies = Bookies(busy, bytes_per_s=200_000_000, least_s=0.001)
    bookies.run(4.0, active_writers)
    before = busy.size
    bookies._least_s = 0.03
    bookies.run(0.5, active_writers)
    assert busy.size <= before
    bookies.run(25.0, active_writers)
    assert busy.size > 3 * before
