"""What a segment list becomes by a change that lets segments go: trims, compaction, the end of a
grace. Each is one compare-and-set; whatever leaves the list is deleted after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.partition.core.leader_effects import (
    Compact,
    Compacted,
    DeleteLedgers,
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
from broker.partition.core.log_state import LogState
from broker.partition.core.segments.retention import dropped_below, expired_count, trimmed_start
from client.ids import Offset
from client.log import compacted as compaction
from client.log.segment_pages import NewPage
from client.log.segments import SegmentList


class LetGo(NamedTuple):
    """A list to be written, with what comes before and after it."""

    segments: SegmentList
    told: Trimmed | Compacted | Released
    dropped: DeleteLedgers
    pages: Sequence[NewPage] = ()


def trimmed(
    change: Trim | Maintain,
    listed: SegmentList,
    unfolded: ListUnfolded,
    log: LogState,
    limits: SegmentLimits,
    now: Now,
) -> LetGo | None:
    """Drop segments, as far as no takeover could need them, and move the log start; None: there is
    nothing to do. `unfolded`: `listed`, its first page opened if need be."""
    found, offsets = unfolded.segments, log.offsets
    start = max(change.before if isinstance(change, Trim) else Offset(0), offsets.log_start)
    if not log.has_own_snapshot:
        count = 0
    elif isinstance(change, Trim):
        count = dropped_below(found, start)
    else:
        count = expired_count(found, limits, active_bytes=log.active.size_bytes, now_ms=now.ms)
    if count:
        start = max(start, trimmed_start(found, count))
    elif start <= offsets.log_start:
        return None
    else:
        unfolded = ListUnfolded(listed)
    ledger_ids = [item.ledger_id for item in found.front[:count]]
    after = unfolded.segments.trimmed(count, start)
    return LetGo(after, Trimmed(ledger_ids, start), DeleteLedgers(ledger_ids, unfolded.opened))


def compacted(change: Compact, listed: SegmentList, found: TrailRead, now: Now) -> LetGo | None:
    """Put compacted segments in the place of their originals; None: those do not stand there any
    more (COMPACT-CAS)."""
    pages: Sequence[NewPage] = ()
    dropped = DeleteLedgers(())
    if change.swap is not None:
        made = (
            None
            if found.pages is None
            else compaction.swapped(listed, change.swap, found.pages, now.ms)
        )
        if made is None:
            return None
        listed, pages, dropped = made.segments, made.pages, DeleteLedgers((), made.dropped)
    if change.done is not None:
        listed = compaction.completed(listed, change.done, now.ms)
    return LetGo(listed, Compacted(change.swap, change.done), dropped, pages)


def released(change: Release, listed: SegmentList) -> LetGo | None:
    """Let go of ledgers whose grace is over; None: there is none."""
    ledger_ids = listed.compaction.due(change.before_ms)
    if not ledger_ids:
        return None
    after = compaction.released(listed, ledger_ids)
    return LetGo(after, Released(ledger_ids), DeleteLedgers(ledger_ids))
