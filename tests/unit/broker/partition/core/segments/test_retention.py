"""Which segments may go."""

from __future__ import annotations

from broker.partition.core.log_limits import SegmentLimits
from broker.partition.core.segments.retention import expired_count, trimmed_start
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segments import Segment, SegmentFacts, SegmentList

FOREVER = SegmentLimits(retention_ms=-1)


def listed(
    *newest: int, size: int = 100, log_start: int = 0, last_open: bool = True
) -> SegmentList:
    """One sealed segment of ten records per timestamp, and an open one."""
    segments = [
        Segment(
            LedgerId(number),
            Offset(10 * number),
            LeaderEpoch(0),
            1000 * number,
            SegmentFacts(Offset(10 * number + 9), size, timestamp),
        )
        for number, timestamp in enumerate(newest)
    ]
    count = len(newest)
    segments.append(Segment(LedgerId(count), Offset(10 * count), LeaderEpoch(0), 1000 * count))
    return SegmentList(LeaderEpoch(0), Offset(log_start), tuple(segments)).check()


def count(
    segments: SegmentList, limits: SegmentLimits, now_ms: int = 10_000, active: int = 0
) -> int:
    return expired_count(segments, limits, active_bytes=active, now_ms=now_ms)


def test_by_the_newest_record() -> None:
    limits = SegmentLimits(retention_ms=1000)
    assert count(listed(8999, 8999, 9000), limits) == 2
    assert count(listed(9000, 1, 1), limits) == 0


def test_a_record_from_the_future_pins_its_segment_and_those_after_it() -> None:
    assert count(listed(1, 99_999, 1), SegmentLimits(retention_ms=1000)) == 1


def test_without_timestamps_the_time_of_sealing_counts() -> None:
    limits = SegmentLimits(retention_ms=1000)
    assert count(listed(-1, -1), limits, now_ms=2001) == 1
    assert count(listed(-1, -1), limits, now_ms=2000) == 0


def test_by_size_the_rest_must_still_be_large_enough() -> None:
    limits = SegmentLimits(retention_ms=-1, retention_bytes=250)
    assert count(listed(1, 1, 1), limits, active=50) == 1
    assert count(listed(1, 1, 1), limits, active=49) == 0
    assert count(listed(1, 1, 1), limits, active=10_000) == 3


def test_the_last_segment_never_goes() -> None:
    assert count(listed(), SegmentLimits(retention_ms=1, retention_bytes=0)) == 0
    assert count(listed(1, 1), SegmentLimits(retention_ms=1, retention_bytes=0)) == 2


def test_unlimited_keeps_everything() -> None:
    assert count(listed(1, 1, 1), FOREVER, now_ms=10**15, active=10**15) == 0


def test_below_the_log_start() -> None:
    assert count(listed(9, 9, 9, log_start=19), FOREVER) == 1
    assert count(listed(9, 9, 9, log_start=20), FOREVER) == 2


def test_empty_segments_at_the_head_go_at_once() -> None:
    empty = Segment(LedgerId(1), Offset(0), LeaderEpoch(0), 0, SegmentFacts(Offset(-1), 40, -1))
    full = Segment(LedgerId(2), Offset(0), LeaderEpoch(1), 0, SegmentFacts(Offset(9), 40, 5))
    last = Segment(LedgerId(3), Offset(10), LeaderEpoch(2), 0)
    segments = SegmentList(LeaderEpoch(2), Offset(0), (empty, full, last)).check()
    assert count(segments, FOREVER) == 1


def test_a_segment_that_is_still_being_closed_stays() -> None:
    unsealed = listed(1).rolled(LedgerId(9), 0)
    assert count(unsealed, SegmentLimits(retention_ms=1)) == 1


def test_the_log_start_moves_to_the_next_segment() -> None:
    assert trimmed_start(listed(1, 1), 1) == 10
    assert trimmed_start(listed(1, 1, log_start=13), 1) == 13
