"""The window of a share group: who gets which records, and what becomes of them. All together is in
`tests/property/test_share_partition.py`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from broker.errors import InvalidRecordState, InvalidRequest
from broker.partition.core.shares.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Acquired,
    Extent,
    ShareCounts,
    SharePartition,
    ShareTerms,
)
from broker.partition.core.shares.share_updates import RecordState, ShareUpdate
from client.ids import Offset

TERMS = ShareTerms(lock_s=30.0, deliveries_max=3, window_max=100)
NOW_S = 1_000.0


class Window:
    """A group that begins at 10, in a log of batches of ten records."""

    def __init__(self, terms: ShareTerms = TERMS) -> None:
        self.share = SharePartition("g", UUID(int=1), Offset(10))
        self.terms = terms
        self.now_s = NOW_S

    def get(
        self, count_max: int = 500, *, member: str = "m", is_strict: bool = False, until: int = 60
    ) -> list[tuple[int, int, int]]:
        wanted = self.share.wanted(self.terms)
        if wanted is None:
            return []
        first = wanted // 10 * 10
        extents = [Extent(Offset(at), Offset(at + 9)) for at in range(first, until, 10)]
        return self.take(extents, wanted, count_max, member=member, is_strict=is_strict)

    def take(
        self,
        extents: Sequence[Extent],
        wanted: int,
        count_max: int = 500,
        *,
        member: str = "m",
        is_strict: bool = False,
    ) -> list[tuple[int, int, int]]:
        found = self.share.acquire(
            extents,
            member,
            self.now_s,
            self.terms,
            read_from=Offset(wanted),
            count_max=count_max,
            is_strict=is_strict,
        )
        self.share.check()
        return [tuple(one) for one in found]  # type: ignore[misc]

    def say(self, first: int, last: int, *types: int, member: str = "m") -> ShareUpdate | None:
        asked = [Acknowledgement(Offset(first), Offset(last), types)]
        update = self.share.acknowledge(member, asked, self.now_s, self.terms)
        self.share.check()
        return update

    def stored(self, update: ShareUpdate | None) -> None:
        assert update is not None
        self.share.on_durable(update)
        self.share.check()


def ranges(update: ShareUpdate | None) -> list[tuple[int, ...]]:
    assert update is not None
    return [tuple(one) for one in update.ranges]


# --- acquire ------------------------------------------------------------------------------------


def test_whole_batches_until_there_are_enough() -> None:
    window = Window()
    assert window.get(15) == [(10, 19, 1), (20, 29, 1)]
    assert window.share.counts() == ShareCounts(0, 20, 0)


def test_an_exact_number_if_that_is_wanted() -> None:
    window = Window()
    assert window.get(15, is_strict=True) == [(10, 19, 1), (20, 24, 1)]
    assert window.get(3, is_strict=True) == [(25, 27, 1)]


def test_a_batch_that_begins_before_the_group_does() -> None:
    window = Window()
    assert window.take([Extent(Offset(5), Offset(12))], 10) == [(10, 12, 1)]


def test_free_only_what_one_member_has_no_other_gets() -> None:
    window = Window()
    assert window.get(10) == [(10, 19, 1)]
    assert window.get(10, member="other") == [(20, 29, 1)]


def test_what_is_not_there_is_nobodys() -> None:
    window = Window()
    found = window.take([Extent(Offset(13), Offset(14)), Extent(Offset(20), Offset(21))], 10)
    assert found == [(13, 14, 1), (20, 21, 1)]
    assert window.share.start == 13
    assert window.share.counts().settled == 5


def test_markers_are_passed_over() -> None:
    window = Window()
    marker = Extent(Offset(20), Offset(20), is_wanted=False)
    assert window.take([Extent(Offset(10), Offset(19)), marker], 10) == [(10, 19, 1)]
    window.say(10, 19, ACCEPT)
    assert window.share.start == window.share.end == 21


def test_bounded_the_window_ends_in_the_middle_of_a_batch() -> None:
    window = Window(ShareTerms(30.0, 3, 15))
    assert window.get() == [(10, 19, 1), (20, 24, 1)]
    assert window.share.wanted(window.terms) is None
    window.say(10, 10, ACCEPT)
    assert window.get() == [(25, 25, 1)], "there is room for one"


def test_last_alone_the_last_delivery_takes_no_other_record_with_it() -> None:
    window = Window()
    window.get(10)
    for _ in range(2):
        window.stored(window.say(10, 19, RELEASE))
        got = window.get(10)
    assert got == [(10, 10, 3)]
    assert window.get(10) == [(11, 11, 3)]


def test_a_first_delivery_does_not_bring_the_last_one_of_another_along() -> None:
    window = Window(ShareTerms(30.0, 2, 100))
    window.get(10)
    window.stored(window.say(15, 15, RELEASE))
    window.share.apply(window.share.whole())  # as after a takeover: all are free, once delivered
    fresh = SharePartition("g", UUID(int=1), Offset(20))
    fresh.apply(ShareUpdate("g", UUID(int=1), 0, Offset(20), window.share.whole().ranges))
    window.share = fresh
    assert window.get(5) == [(20, 29, 1)]


# --- settle -------------------------------------------------------------------------------------


def test_accepted_records_move_the_start_when_those_before_are_settled() -> None:
    window = Window()
    window.get(10)
    update = window.say(12, 19, ACCEPT)
    assert (update and update.start, ranges(update)) == (10, [(12, 19, 2, 0)])
    update = window.say(10, 11, REJECT)
    assert (update and update.start, ranges(update)) == (20, [(10, 11, 4, 0)])
    assert window.share.run_count == 0


def test_one_type_for_each_record() -> None:
    window = Window()
    window.get(10)
    update = window.say(10, 13, ACCEPT, GAP, RELEASE, ACCEPT)
    assert ranges(update) == [(10, 10, 2, 0), (11, 11, 4, 0), (12, 12, 0, 1), (13, 13, 2, 0)]


def test_release_late_a_record_is_free_when_that_is_durable() -> None:
    window = Window()
    window.get(10)
    update = window.say(10, 19, RELEASE)
    assert window.get(10, member="other") == [(20, 29, 1)]
    assert window.share.on_durable(update or window.share.whole()) is True
    assert window.get(10, member="other") == [(10, 19, 2)]


def test_limit_always_what_comes_back_the_last_time_is_archived() -> None:
    window = Window(ShareTerms(30.0, 2, 100))
    window.take([Extent(Offset(10), Offset(10))], 10)
    window.stored(window.say(10, 10, RELEASE))
    assert window.take([Extent(Offset(10), Offset(10))], 10) == [(10, 10, 2)]
    window.now_s += 30
    update = window.share.expire(window.now_s, window.terms)
    assert ranges(update) == [(10, 10, 4, 0)]
    assert window.share.start == 11


def test_own_only() -> None:
    window = Window()
    window.get(10)
    for member, first, last in (("other", 10, 10), ("m", 10, 19)):
        if member == "m":
            window.say(15, 15, ACCEPT)
        before = window.share.whole()
        with pytest.raises(InvalidRecordState):
            window.say(first, last, ACCEPT, member=member)
        assert window.share.whole() == before, "all or none"


def test_a_lock_that_has_passed_is_no_lock() -> None:
    window = Window()
    window.get(10)
    window.now_s += 30
    with pytest.raises(InvalidRecordState):
        window.say(10, 19, ACCEPT)
    with pytest.raises(InvalidRecordState):
        window.say(10, 19, RENEW)


def test_a_renewed_lock_begins_anew() -> None:
    window = Window()
    window.get(10)
    window.now_s += 20
    assert window.say(10, 14, RENEW) is None, "nothing of it is durable"
    assert window.share.next_lock_s() == NOW_S + 30
    window.now_s += 10
    assert ranges(window.share.expire(window.now_s, window.terms)) == [(15, 19, 0, 1)]
    assert window.share.next_lock_s() == NOW_S + 50
    window.say(10, 14, ACCEPT)
    assert window.share.next_lock_s() is None


@pytest.mark.parametrize(
    "asked",
    [
        [(15, 14, (ACCEPT,))],
        [(-1, 14, (ACCEPT,))],
        [(10, 14, (ACCEPT,)), (14, 15, (ACCEPT,))],
        [(12, 14, (ACCEPT,)), (10, 11, (ACCEPT,))],
        [(10, 14, (ACCEPT, ACCEPT))],
        [(10, 14, ())],
        [(10, 10, (5,))],
        [(10, 10, (-1,))],
        [(10, 20, (ACCEPT,))],
    ],
)
def test_what_makes_no_sense(asked: list[tuple[int, int, tuple[int, ...]]]) -> None:
    window = Window()
    window.get(10)
    before = window.share.whole()
    with pytest.raises(InvalidRequest):
        window.share.acknowledge(
            "m",
            [Acknowledgement(Offset(one), Offset(two), types) for one, two, types in asked],
            window.now_s,
            window.terms,
        )
    assert window.share.whole() == before


def test_what_lies_before_the_start_is_passed_over() -> None:
    window = Window()
    window.get(10)
    window.say(10, 14, ACCEPT)
    assert ranges(window.say(10, 15, ACCEPT)) == [(15, 15, 2, 0)]
    assert window.say(10, 12, ACCEPT) is None


def test_a_member_that_is_gone_holds_nothing() -> None:
    window = Window()
    window.get(10)
    window.get(10, member="other")
    update = window.share.release_member("m", window.terms)
    assert ranges(update) == [(10, 19, 0, 1)]
    window.stored(update)
    assert window.get(10, member="other") == [(10, 19, 2)]
    assert window.share.release_member("m", window.terms) is None


# --- the log ------------------------------------------------------------------------------------


def test_a_takeover_finds_what_was_settled_and_how_often_all_was_delivered() -> None:
    window = Window()
    updates = [window.share.whole()]
    window.get(20)
    for update in (window.say(12, 14, ACCEPT), window.say(25, 25, RELEASE)):
        assert update is not None
        updates.append(update)
    again = SharePartition("g", UUID(int=1), Offset(10))
    for update in updates:
        again.apply(update)
        again.check()
    assert (again.start, again.end) == (10, 26)
    assert [tuple(one) for one in again.whole().ranges] == [
        (10, 11, RecordState.AVAILABLE, 0),
        (12, 14, RecordState.ACKNOWLEDGED, 0),
        (15, 24, RecordState.AVAILABLE, 0),
        (25, 25, RecordState.AVAILABLE, 1),
    ]


def test_trimmed_records_are_nobodys() -> None:
    window = Window()
    window.get(20)
    window.share.trim(Offset(15))
    window.share.check()
    assert window.share.start == 15
    window.share.trim(Offset(500))
    window.share.check()
    assert (window.share.start, window.share.end, window.share.run_count) == (500, 500, 0)


def test_many_changes_leave_few_runs() -> None:
    window = Window(ShareTerms(30.0, 5, 2_000))
    found = window.take([Extent(Offset(10), Offset(1_009))], 10)
    assert found == [tuple(Acquired(Offset(10), Offset(1_009), 1))]
    for offset in range(11, 1_010, 2):
        window.say(offset, offset, ACCEPT)
    assert window.share.run_count == 1_000
    for offset in range(12, 1_010, 2):
        window.say(offset, offset, ACCEPT)
    assert window.share.run_count == 2
    window.say(10, 10, ACCEPT)
    assert window.share.start == 1_010
