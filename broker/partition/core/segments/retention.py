"""Decides which of the oldest segments are deleted.

Segments are deleted as a whole, oldest first. The active segment is never deleted: when its records
have expired, it is rolled first. A segment without records at the front of the list is deleted as
soon as another one follows it.

Only the list's `front` is looked at: in a list with pages that is what is left of the oldest page.
"""

from __future__ import annotations

from broker.partition.core.log_limits import UNLIMITED, SegmentLimits
from client.ids import Offset
from client.log.segments import SegmentFacts, SegmentList


def expired_count(
    segments: SegmentList, limits: SegmentLimits, *, active_bytes: int, now_ms: int
) -> int:
    """Return how many of the oldest segments a trim should drop.

    By time: while the segment's newest record is older than `retention_ms`. By size: while the
    remaining segments have at least `retention_bytes`. Below the log start: always.
    """
    total = segments.size_bytes + active_bytes
    count = 0
    items = segments.items
    for index, segment in enumerate(segments.front):
        facts = segment.facts
        if facts is None:
            break
        rest = total - facts.size_bytes
        if not (
            facts.last_offset < segments.log_start_offset
            or facts.last_offset + 1 == segment.base_offset
            or (limits.retention_bytes != UNLIMITED and rest >= limits.retention_bytes)
            or _is_old(facts, items[index + 1].created_ms, limits, now_ms)
        ):
            break
        count += 1
        total = rest
    return count


def looks_into_pages(segments: SegmentList, limits: SegmentLimits, before: Offset | None) -> bool:
    """Whether segments of the first page may have to be dropped, and the page is not unfolded yet.

    `before`: of a trim; None: expired segments are dropped.
    """
    if segments.oldest or not segments.pages:
        return False
    if before is None and (limits.retention_ms, limits.retention_bytes) != (UNLIMITED, UNLIMITED):
        return True
    start = max(segments.log_start_offset, before or Offset(0))
    return segments.pages[0].base_offset < start


def dropped_below(segments: SegmentList, start: Offset) -> int:
    """Return how many of the oldest segments end at or below an offset."""
    count = 0
    for segment in segments.front:
        if segment.end_offset is None or segment.end_offset > start:
            break
        count += 1
    return count


def _is_old(facts: SegmentFacts, ended_ms: int, limits: SegmentLimits, now_ms: int) -> bool:
    """Compare the newest record's timestamp, or if there is none, the time of the segment's end."""
    if limits.retention_ms == UNLIMITED:
        return False
    newest = facts.max_timestamp_ms
    return now_ms - (newest if newest >= 0 else ended_ms) > limits.retention_ms


def trimmed_start(segments: SegmentList, count: int) -> Offset:
    """Return the log start after dropping `count` segments."""
    base = segments.items[count].base_offset
    assert base is not None
    return max(segments.log_start_offset, base)
