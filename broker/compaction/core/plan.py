"""What of a partition may be compacted, whether it should be, and in which pieces.

Segments go in whole, from the oldest on. Never cleaned are

    KEEP-TAIL   the last two segments, and the newest one with entries and with records, with all
                that follows: a takeover replays them, and readers wait for the log's last offset.
    STABLE      what does not end below the last stable offset: an open transaction stops all that
                follows its first record, and who reads committed data up to there comes to it.
    MIN-LAG     the first segment with a record younger than min.compaction.lag.ms, and what
                follows.

A partition is due when the share of dirty bytes of what may be cleaned is above
min.cleanable.dirty.ratio, when its oldest dirty segment is older than max.compaction.lag.ms, when
the delete horizon of a tombstone has passed, or when somebody asked for it.

A group whose aborted transactions are listed in another group's ledger is written anew even if it
loses nothing (OWN-INDEX): the other ledger may be let go before it.

A group is what becomes one new segment or more: adjacent segments of one leader epoch (ONE-EPOCH:
the ends of epochs must stay what they are) and of one page, up to the size of a segment.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from client.ids import Offset
from client.log.segments import CompactionState, Segment

KEEP_SEGMENTS: Final = 2
NEVER: Final = float("inf")
_UNLIMITED_MS: Final = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """What a topic's configuration says of its compaction."""

    dirty_ratio_min: float = 0.5
    lag_ms_min: int = 0
    lag_ms_max: int = _UNLIMITED_MS
    retain_ms: int = 86_400_000
    """How long tombstones stay after the first clean that met them."""
    segment_bytes: int = 1 << 30


class Why(enum.Enum):
    """Why a partition should be compacted now."""

    ASKED = "asked"
    OVERDUE = "overdue"
    HORIZON = "tombstones"
    DIRTY = "dirty"


class Standing(NamedTuple):
    """How clean a partition is."""

    clean_bytes: int = 0
    dirty_bytes: int = 0
    first_dirty: Offset = Offset(0)
    """What is below was compacted."""
    end: Offset = Offset(0)
    """What is below may be compacted."""
    overdue_ms: float = NEVER
    """When its oldest dirty segment has waited long enough."""
    horizon_ms: float = NEVER
    """When some tombstone may go."""
    blocked_at: Offset | None = None
    """Where an open transaction begins, from which on nothing is compacted; None: nowhere that
    matters."""

    @property
    def dirty_ratio(self) -> float:
        """Share of dirty bytes of what may be compacted."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def standing(
    segments: Sequence[Segment],
    state: CompactionState,
    limits: CompactionLimits,
    stable: Offset,
    now_ms: int,
) -> Standing:
    """Judge a partition by all of its segments, oldest first."""
    count = _cleanable_count(segments, limits, stable, now_ms)
    cleanable, blocked_at = segments[:count], None
    following = segments[count].end_offset if count < _kept_from(segments) else None
    if following is not None and following >= stable:
        blocked_at = stable
    if not cleanable:
        until = state.cleaned_until
        return Standing(first_dirty=until, end=until, blocked_at=blocked_at)
    start, end = cleanable[0].base_offset, cleanable[-1].end_offset
    assert start is not None
    assert end is not None
    first_dirty = min(end, max(start, state.cleaned_until))
    dirty = [
        one for one in cleanable if one.end_offset is not None and one.end_offset > first_dirty
    ]
    total = sum(one.facts.size_bytes for one in cleanable if one.facts is not None)
    dirty_bytes = sum(one.facts.size_bytes for one in dirty if one.facts is not None)
    overdue_ms = NEVER
    if dirty and limits.lag_ms_max < _UNLIMITED_MS:
        overdue_ms = dirty[0].created_ms + limits.lag_ms_max
    horizon_ms = NEVER if state.next_horizon_ms < 0 else state.next_horizon_ms
    return Standing(
        total - dirty_bytes, dirty_bytes, first_dirty, end, overdue_ms, horizon_ms, blocked_at
    )


def why_due(found: Standing, limits: CompactionLimits, now_ms: int, *, asked: bool) -> Why | None:
    """Return why a partition should be compacted now; None: it should not."""
    if not found.clean_bytes + found.dirty_bytes:
        return None
    if asked:
        return Why.ASKED
    if found.overdue_ms < now_ms:
        return Why.OVERDUE
    if found.horizon_ms < now_ms:
        return Why.HORIZON
    return Why.DIRTY if found.dirty_ratio > limits.dirty_ratio_min else None


_ORDER: Final = tuple(Why)


def urgency(why: Why, found: Standing) -> tuple[int, float]:
    """Return a sort key: what was asked for and what is overdue first, then the dirtiest."""
    return _ORDER.index(why), -found.dirty_ratio


def groups(
    segments: Iterable[Sequence[Segment]], end: Offset, segment_bytes: int
) -> list[tuple[Segment, ...]]:
    """Divide what begins below `end` into groups, oldest first.

    `segments`: in runs that stand in one node each.
    """
    found: list[tuple[Segment, ...]] = []
    for run in segments:
        group: list[Segment] = []
        size = 0
        for segment in run:
            if segment.base_offset is None or segment.base_offset >= end:
                break
            assert segment.facts is not None
            more = segment.facts.size_bytes
            if group and (
                group[-1].leader_epoch != segment.leader_epoch or size + more > segment_bytes
            ):
                found.append(tuple(group))
                group, size = [], 0
            group.append(segment)
            size += more
        if group:
            found.append(tuple(group))
    return [group for group in found if any(map(_has_offsets, group))]


def is_listed_elsewhere(segment: Segment) -> bool:
    """Whether what is aborted in a segment is listed in another one's ledger (OWN-INDEX)."""
    known = segment.facts.transactions if segment.facts is not None else None
    place = known.aborted_at if known is not None else None
    return place is not None and place.ledger_id != segment.ledger_id


def _cleanable_count(
    segments: Sequence[Segment], limits: CompactionLimits, stable: Offset, now_ms: int
) -> int:
    count = _kept_from(segments)
    for at in range(count):
        facts, end = segments[at].facts, segments[at].end_offset
        if facts is None or end is None or end >= stable:
            return at
        if limits.lag_ms_min:
            newest_ms = facts.max_timestamp_ms
            if newest_ms < 0:
                newest_ms = segments[at + 1].created_ms
            if newest_ms > now_ms - limits.lag_ms_min:
                return at
    return count


def _kept_from(segments: Sequence[Segment]) -> int:
    """Return how many segments precede those that are never cleaned (KEEP-TAIL)."""
    return max(
        0,
        min(
            len(segments) - KEEP_SEGMENTS,
            _newest(segments, _has_entries),
            _newest(segments, _has_records),
        ),
    )


def _newest(segments: Sequence[Segment], has: Callable[[Segment], bool]) -> int:
    for at in range(len(segments) - 1, -1, -1):
        if has(segments[at]):
            return at
    return 0


def _has_entries(segment: Segment) -> bool:
    return segment.facts is not None and segment.facts.size_bytes > 0


def _has_offsets(segment: Segment) -> bool:
    end, base = segment.end_offset, segment.base_offset
    return end is not None and base is not None and end > base


def _has_records(segment: Segment) -> bool:
    """Certainly: what was compacted may have lost all of them."""
    return _has_offsets(segment) and not segment.cleaned
