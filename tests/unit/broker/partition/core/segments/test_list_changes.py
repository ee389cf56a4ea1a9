"""Changes that let segments go: what is written, what is told, what is deleted after it."""

from __future__ import annotations

from broker.partition.core.leader_effects import (
    Compact,
    Compacted,
    ListUnfolded,
    Maintain,
    Now,
    Release,
    Released,
    TrailRead,
    Trim,
    Trimmed,
)
from broker.partition.core.log_limits import SegmentLimits
from broker.partition.core.segments.list_changes import compacted, released, trimmed
from client.ids import LedgerId, Offset
from client.log.compacted import Round, Swap
from client.log.segments import SegmentList
from tests.unit.broker.partition.core.leader_driver import NOW_MS, new_log
from tests.unit.client.log.test_compacted import log, swap

NOW = Now(NOW_MS, 1.0)


def trim(listed: SegmentList, before: int, *, has_snapshot: bool = True) -> object:
    state = new_log()
    state.has_own_snapshot = has_snapshot
    change = Trim(0, Offset(before))
    return trimmed(change, listed, ListUnfolded(listed), state, SegmentLimits(), NOW)


def test_a_trim_drops_whole_segments_and_moves_the_start() -> None:
    state = new_log()
    state.has_own_snapshot = True
    listed = log(4)
    found = trimmed(Trim(0, Offset(25)), listed, ListUnfolded(listed), state, SegmentLimits(), NOW)
    assert found is not None
    assert found.report == Trimmed([LedgerId(0), LedgerId(1)], Offset(25))
    assert found.dropped.ledger_ids == [0, 1]
    assert found.segments.log_start_offset == 25
    assert trim(listed, 0) is None


def test_own_snapshot_without_one_only_the_start_moves() -> None:
    state = new_log()
    listed = log(4)
    found = trimmed(Trim(0, Offset(25)), listed, ListUnfolded(listed), state, SegmentLimits(), NOW)
    assert found is not None
    assert found.dropped.ledger_ids == []
    assert (found.segments.log_start_offset, len(found.segments.segments)) == (25, 5)


def test_retention_by_time_takes_what_was_compacted_like_anything_else() -> None:
    """The newest record that is left counts; without any, the time at which the segment ended."""
    state = new_log()
    state.has_own_snapshot = True
    made = compacted(Compact(0, swap((0, 1), 0, 20)), log(4), TrailRead(()), NOW)
    assert made is not None
    listed = made.segments
    limits = SegmentLimits(retention_ms=1000)
    found = trimmed(Maintain(0), listed, ListUnfolded(listed), state, limits, NOW)
    assert found is not None
    assert found.dropped.ledger_ids == [900, 2, 3]


def test_a_swap_deletes_no_ledger_but_retires_it() -> None:
    found = compacted(
        Compact(0, swap((1, 2), 10, 30), Round(Offset(30), -1)), log(4), TrailRead(()), NOW
    )
    assert found is not None
    assert isinstance(found.report, Compacted)
    assert found.dropped.ledger_ids == ()
    assert [one.ledger_id for one in found.segments.compaction.retired] == [1, 2]
    assert found.segments.compaction.cleaned_until == 30
    assert released(Release(0, NOW_MS - 1), found.segments) is None
    after = released(Release(0, NOW_MS), found.segments)
    assert after is not None
    assert after.report == Released((LedgerId(1), LedgerId(2)))
    assert after.dropped.ledger_ids == (1, 2)


def test_pages_that_cannot_be_read_stop_a_swap() -> None:
    made: Swap = swap((1, 2), 10, 30)
    assert compacted(Compact(0, made), log(4), TrailRead(None), NOW) is None
