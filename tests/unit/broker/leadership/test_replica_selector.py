"""Where a consumer is sent, and how much of a partition may be read without its leader."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import pytest

from broker.leadership.follower import (
    NOWHERE,
    choose_replica,
    redirect_offset_max,
    sealed_end,
    stable_end,
)
from client.ids import BrokerId, EntryId, LeaderEpoch, LedgerId, Offset
from client.log.segment import SnapshotPlace, TransactionFacts
from client.log.segment_pages import NewPage, Page, PageName, ref_of
from client.log.segments import Segment, SegmentFacts, SegmentList

TOPIC = UUID(int=5)


class Some(NamedTuple):
    id: BrokerId
    rack: str | None


def brokers(*racks: str | None) -> list[Some]:
    return [Some(BrokerId(number), rack) for number, rack in enumerate(racks)]


def segment(number: int, size_bytes: int = 100, stable: int | None = None) -> Segment:
    """A sealed segment of ten records."""
    transactions = None
    if stable is not None:
        place = SnapshotPlace(LedgerId(number), EntryId(0))
        transactions = TransactionFacts(True, 1, place, Offset(stable))
    facts = SegmentFacts(Offset(10 * number + 9), size_bytes, 0, transactions)
    return Segment(LedgerId(number), Offset(10 * number), LeaderEpoch(0), 0, facts)


def active(number: int, base_offset: int | None) -> Segment:
    base = None if base_offset is None else Offset(base_offset)
    return Segment(LedgerId(number), base, LeaderEpoch(0), 0)


def test_a_consumer_is_sent_to_its_rack_or_nowhere() -> None:
    some = brokers("a", "b", None, "b")
    assert choose_replica("a", some, TOPIC, 0) == 0
    assert choose_replica("c", some, TOPIC, 0) is None
    assert choose_replica("", some, TOPIC, 0) is None


def test_partitions_are_spread_over_a_rack_and_each_has_its_place() -> None:
    some = brokers("a", "b", "b", "b")
    chosen = [choose_replica("b", some, TOPIC, index) for index in range(6)]
    assert sorted(chosen[:3], key=str) == [1, 2, 3]
    assert chosen == [choose_replica("b", reversed(some), TOPIC, index) for index in range(6)]


@pytest.mark.parametrize(
    ("listed", "sealed", "stable"),
    [
        (SegmentList(), 0, 0),
        (SegmentList(segments=(active(0, 0),)), 0, 0),
        (SegmentList(segments=(segment(0), active(1, 10))), 10, 10),
        (SegmentList(segments=(segment(0), active(1, 10), active(2, None))), 10, 10),
        (SegmentList(segments=(segment(0), segment(1, stable=14), active(2, 20))), 20, 14),
        (SegmentList(segments=(segment(0, stable=4), segment(1), active(2, 20))), 20, 20),
        (SegmentList(LeaderEpoch(0), Offset(16), (segment(1, stable=4), active(2, 20))), 20, 16),
    ],
)
def test_what_is_sealed_and_what_of_it_is_decided(
    listed: SegmentList, sealed: int, stable: int
) -> None:
    assert (sealed_end(listed), stable_end(listed)) == (sealed, stable)


def test_a_consumer_is_far_behind_if_enough_is_sealed_before_it() -> None:
    listed = SegmentList(segments=(segment(0), segment(1), segment(2), active(3, 30)))
    bounds = [redirect_offset_max(listed, size) for size in (1, 100, 101, 300, 301)]
    assert bounds == [20, 20, 10, 0, NOWHERE]
    assert redirect_offset_max(SegmentList(segments=(active(0, 0),)), 1) == NOWHERE


def test_pages_count_as_a_whole() -> None:
    name = PageName(0, LeaderEpoch(0), LedgerId(2))
    page = NewPage(name, Page(segments=(segment(0), segment(1))))
    listed = SegmentList(
        segments=(segment(2), active(3, 30)), pages=(ref_of(name, page.page),), page_count=1
    )
    assert [redirect_offset_max(listed, size) for size in (100, 101, 300, 301)] == [
        20,
        0,
        0,
        NOWHERE,
    ]
    assert sealed_end(listed) == 30
