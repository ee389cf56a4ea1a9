"""What may be compacted, when, and in which pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.compaction.core.plan import (
    CompactionLimits,
    Standing,
    Why,
    groups,
    is_listed_elsewhere,
    standing,
    urgency,
    why_due,
)
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.segment import SnapshotPlace, TransactionFacts
from client.log.segments import CompactionState, Segment, SegmentFacts

NOW_MS = 1_000_000
HOUR = 3_600_000


def segment(
    ledger: int,
    base: int,
    end: int | None,
    *,
    size: int = 100,
    epoch: int = 0,
    newest_ms: int = 0,
    created_ms: int = 0,
    cleaned: bool = False,
) -> Segment:
    facts = None if end is None else SegmentFacts(Offset(end - 1), size, newest_ms)
    return Segment(LedgerId(ledger), Offset(base), LeaderEpoch(epoch), created_ms, facts, cleaned)


def log(count: int, **options: int) -> list[Segment]:
    """Segments of ten records; the last one is open."""
    sealed = [segment(number, 10 * number, 10 * number + 10, **options) for number in range(count)]
    return [*sealed, segment(count, 10 * count, None)]


def judge(
    segments: Sequence[Segment], *, until: int = 0, stable: int = 1 << 40, **limits: int
) -> Standing:
    return standing(
        segments,
        CompactionState(cleaned_until=Offset(until)),
        CompactionLimits(**limits),
        Offset(stable),
        NOW_MS,
    )


def test_the_last_two_segments_are_kept() -> None:
    assert judge(log(5)).end == 40
    assert judge(log(1)) == judge([]) == Standing()


def test_the_newest_segments_with_entries_and_with_records_are_kept() -> None:
    empty = [segment(5, 50, 50, size=0), segment(6, 50, 50, size=0), segment(7, 50, None)]
    assert judge([*log(5)[:5], *empty]).end == 40
    without_records = [segment(5, 50, 50), segment(6, 50, 50), segment(7, 50, None)]
    assert judge([*log(5)[:5], *without_records]).end == 40
    compacted = [segment(5, 50, 60, cleaned=True), *without_records]
    assert judge([*log(5)[:5], *compacted]).end == 40


def test_nothing_above_the_last_stable_offset() -> None:
    assert judge(log(5), stable=31).end == 30
    assert judge(log(5), stable=30).end == 20, "its last record is what some wait for"
    assert judge(log(5), stable=29).end == 20
    assert judge(log(5), stable=0) == Standing(blocked_at=Offset(0))


def test_nothing_younger_than_the_shortest_lag_nor_what_follows_it() -> None:
    segments = log(6)
    facts = segments[2].facts
    assert facts is not None
    segments[2] = segments[2]._replace(facts=facts._replace(max_timestamp_ms=NOW_MS - 999))
    assert judge(segments, lag_ms_min=999).end == 50
    assert judge(segments, lag_ms_min=1000).end == 20
    # In the future: it pins what follows, as in Kafka.
    segments[2] = segments[2]._replace(facts=facts._replace(max_timestamp_ms=NOW_MS + HOUR))
    assert judge(segments, lag_ms_min=1).end == 20
    # Without timestamps the time counts at which the segment ended.
    segments[2] = segments[2]._replace(facts=facts._replace(max_timestamp_ms=-1))
    segments[3] = segments[3]._replace(created_ms=NOW_MS - 5)
    assert judge(segments, lag_ms_min=6).end == 20
    assert judge(segments, lag_ms_min=5).end == 50


def test_what_an_open_transaction_holds_back_is_told() -> None:
    found = judge(log(6), stable=27)
    assert (found.end, found.blocked_at) == (20, 27)
    assert judge(log(6), stable=51).blocked_at is None
    # In what is kept anyway it stands in nobody's way.
    assert judge(log(6), stable=53).blocked_at is None


def test_transactions_that_are_decided_hold_nothing_back() -> None:
    segments = log(6)
    facts = segments[2].facts
    assert facts is not None
    seen = TransactionFacts(True, 0, None, Offset(25))
    segments[2] = segments[2]._replace(facts=facts._replace(transactions=seen))
    assert judge(segments, stable=60).end == 50


def test_own_index_a_segment_whose_aborted_transactions_another_ledger_lists() -> None:
    sealed = segment(7, 0, 10)
    assert sealed.facts is not None
    assert not is_listed_elsewhere(sealed)
    for ledger, is_elsewhere in ((7, False), (8, True)):
        place = SnapshotPlace(LedgerId(ledger), EntryId(0))
        seen = TransactionFacts(True, 1, place, Offset(10))
        one = sealed._replace(facts=sealed.facts._replace(transactions=seen))
        assert is_listed_elsewhere(one) is is_elsewhere


def test_the_dirty_ratio_is_of_what_may_be_compacted() -> None:
    found = judge(log(6), until=30)
    assert (found.clean_bytes, found.dirty_bytes, found.first_dirty, found.end) == (
        300,
        200,
        30,
        50,
    )
    assert found.dirty_ratio == pytest.approx(0.4)
    limits = CompactionLimits(dirty_ratio_min=0.4)
    assert why_due(found, limits, NOW_MS, asked=False) is None
    limits = CompactionLimits(dirty_ratio_min=0.39)
    assert why_due(found, limits, NOW_MS, asked=False) is Why.DIRTY
    # What was compacted, then trimmed, is neither.
    assert judge(log(6)[3:], until=20).first_dirty == 30


def test_a_dirty_segment_older_than_the_longest_lag_is_overdue_whatever_the_ratio() -> None:
    limits = CompactionLimits(dirty_ratio_min=1.0, lag_ms_max=500)
    segments = log(5, created_ms=NOW_MS - 500)
    found = standing(segments, CompactionState(), limits, Offset(99), NOW_MS)
    assert why_due(found, limits, NOW_MS, asked=False) is None
    assert why_due(found, limits, NOW_MS + 1, asked=False) is Why.OVERDUE
    clean = standing(segments, CompactionState(Offset(40)), limits, Offset(99), NOW_MS)
    assert why_due(clean, limits, NOW_MS + HOUR, asked=False) is None


def test_tombstones_whose_time_is_over_ask_for_a_round_without_new_data() -> None:
    limits = CompactionLimits()
    state = CompactionState(Offset(40), next_horizon_ms=NOW_MS)
    found = standing(log(5), state, limits, Offset(99), NOW_MS)
    assert why_due(found, limits, NOW_MS, asked=False) is None
    assert why_due(found, limits, NOW_MS + 1, asked=False) is Why.HORIZON


def test_who_asks_is_served_unless_there_is_nothing() -> None:
    assert why_due(judge(log(5), until=40), CompactionLimits(), NOW_MS, asked=True) is Why.ASKED
    assert why_due(judge(log(1)), CompactionLimits(), NOW_MS, asked=True) is None


def test_asked_and_overdue_come_first_then_the_dirtiest() -> None:
    clean, dirty = Standing(90, 10), Standing(10, 90)
    order = sorted(
        [(Why.DIRTY, clean), (Why.DIRTY, dirty), (Why.HORIZON, clean), (Why.OVERDUE, clean),
         (Why.ASKED, clean)],
        key=lambda one: urgency(*one),
    )  # fmt: skip
    assert [(why, found.dirty_bytes) for why, found in order] == [
        (Why.ASKED, 10), (Why.OVERDUE, 10), (Why.HORIZON, 10), (Why.DIRTY, 90), (Why.DIRTY, 10),
    ]  # fmt: skip


def test_groups_are_of_one_epoch_one_node_and_one_segment_size() -> None:
    def ledgers(runs: list[list[Segment]], end: int, size: int = 250) -> list[list[int]]:
        return [[one.ledger_id for one in group] for group in groups(runs, Offset(end), size)]

    segments = log(6)
    assert ledgers([segments], 50) == [[0, 1], [2, 3], [4]]
    assert ledgers([segments], 41, 10_000) == [[0, 1, 2, 3, 4]]
    assert ledgers([segments], 40, 10_000) == [[0, 1, 2, 3]]
    assert ledgers([segments[:3], segments[3:]], 50, 10_000) == [[0, 1, 2], [3, 4]]
    two = [one._replace(leader_epoch=LeaderEpoch(one.ledger_id // 2)) for one in segments]
    assert ledgers([two], 50, 10_000) == [[0, 1], [2, 3], [4]]
    assert ledgers([segments], 50, 50) == [[0], [1], [2], [3], [4]]


def test_segments_without_offsets_alone_are_left_as_they_are() -> None:
    segments = [segment(1, 0, 10), segment(2, 10, 10, epoch=1), segment(3, 10, 20, epoch=2)]
    found = groups([segments], Offset(20), 1000)
    assert [[one.ledger_id for one in group] for group in found] == [[1], [3]]
