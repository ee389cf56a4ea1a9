"""Which of the oldest segments may go.

Segments go whole and from the oldest on; the last one, which is being written, never goes (when
its records have expired it is rolled first). A segment without records at the head of the list
goes as soon as another one follows it.
"""

from __future__ import annotations

from broker.partition.core.log_limits import UNLIMITED, SegmentLimits
from client.ids import Offset
from client.log.segments import Segment, SegmentList


def expired_count(
    segments: SegmentList, limits: SegmentLimits, *, active_bytes: int, now_ms: int
) -> int:
    """Return how many of the oldest segments a trim should drop.

    By time: while the segment's newest record is older than `retention_ms`. By size: while the
    remaining segments still have `retention_bytes`. Below the log start: always.
    """
    items = segments.segments
    sizes = [item.facts.size_bytes if item.facts is not None else active_bytes for item in items]
    total = sum(sizes)
    count = 0
    for index, segment in enumerate(items[:-1]):
        facts = segment.facts
        if facts is None:
            break
        rest = total - sizes[index]
        if not (
            facts.last_offset < segments.log_start_offset
            or facts.last_offset + 1 == segment.base_offset
            or (limits.retention_bytes != UNLIMITED and rest >= limits.retention_bytes)
            or _is_old(segment, items[index + 1], limits, now_ms)
        ):
            break
        count += 1
        total = rest
    return count


def _is_old(segment: Segment, following: Segment, limits: SegmentLimits, now_ms: int) -> bool:
    """Compare the newest record's timestamp; without any, the time at which the segment ended."""
    if limits.retention_ms == UNLIMITED:
        return False
    assert segment.facts is not None
    newest = segment.facts.max_timestamp_ms
    return now_ms - (newest if newest >= 0 else following.created_ms) > limits.retention_ms


def trimmed_start(segments: SegmentList, count: int) -> Offset:
    """Return the log start after dropping `count` segments."""
    base = segments.segments[count].base_offset
    assert base is not None
    return max(segments.log_start_offset, base)
