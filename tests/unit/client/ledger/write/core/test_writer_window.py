"""A writer beside others has unconfirmed only what is confirmed within the target."""

from __future__ import annotations

from collections import deque

import pytest

from client.ledger.write.core.writer_window import ActiveWriters, WriterWindow

MAX = 16_000_000
MIN = 1_000_000


def window(active_writers: ActiveWriters) -> WriterWindow:
    return WriterWindow(active_writers, MAX, shared_bytes_min=MIN, target_s=0.01)


def meet(active_writers: ActiveWriters, busy: WriterWindow, now_s: float) -> None:
    """Somebody adds, and the busy one again."""
    active_writers.change(object(), now_s, is_new=True)
    active_writers.change(busy, now_s, is_new=False)


def confirm(busy: WriterWindow, bytes_per_s: int, *, begin_s: float, seconds: float = 1.0) -> None:
    for at in range(int(seconds * 1000)):
        now_s = begin_s + at / 1000
        busy.on_confirmed(int(now_s * bytes_per_s), now_s)


def test_a_writer_alone_has_the_whole_window() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    active_writers.change(busy, 100.0, is_new=True)
    assert busy.size == MAX
    confirm(busy, 200_000_000, begin_s=100.0)
    assert busy.size == MAX


def test_the_next_ledger_of_a_partition_is_alone_as_the_one_before_was() -> None:
    active_writers = ActiveWriters()
    for second in range(100, 110):
        busy = window(active_writers)
        active_writers.change(busy, second, is_new=True)
        confirm(busy, 200_000_000, begin_s=second)
        assert busy.size == MAX
        assert not busy.is_shared


def test_the_next_ledger_beside_others_shares_from_its_first_entry_on() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    meet(active_writers, busy, 100.0)
    following = window(active_writers)
    following.on_others(101.0, is_new=True)
    assert following.is_shared
    assert following.size == MIN


def test_a_ledger_that_begins_makes_the_one_that_goes_on_share() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    active_writers.change(busy, 100.0, is_new=True)
    active_writers.change(object(), 100.0, is_new=True)
    confirm(busy, 200_000_000, begin_s=100.0)
    assert busy.size == MAX, "the other one may be what comes after this one"
    active_writers.change(busy, 101.0, is_new=False)
    confirm(busy, 200_000_000, begin_s=101.0)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)


def test_a_writer_in_company_has_what_is_confirmed_within_the_target() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    meet(active_writers, busy, 100.0)
    confirm(busy, 200_000_000, begin_s=100.0)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 400_000_000, begin_s=101.0)
    assert busy.size == pytest.approx(4_000_000, rel=0.01)


def test_never_less_than_the_least_and_never_more_than_alone() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    meet(active_writers, busy, 100.0)
    confirm(busy, 1_000, begin_s=100.0)
    assert busy.size == MIN
    confirm(busy, 10_000_000_000, begin_s=101.0)
    assert busy.size == MAX


def test_company_that_went_away_is_forgotten_and_one_record_a_second_is_company() -> None:
    active_writers = ActiveWriters()
    busy, quiet = window(active_writers), object()
    for second in range(100, 110):
        active_writers.change(quiet, second, is_new=False)
        active_writers.change(busy, second + 0.5, is_new=False)
        confirm(busy, 200_000_000, begin_s=second)
        assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 200_000_000, begin_s=112.0)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 200_000_000, begin_s=115.0)
    assert busy.size == MAX


def test_confirmed_bytes_are_measured_over_an_interval_and_not_from_one_to_the_next() -> None:
    active_writers = ActiveWriters()
    busy = window(active_writers)
    meet(active_writers, busy, 100.0)
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
            meet(active_writers, self._busy, self.now_s)
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
