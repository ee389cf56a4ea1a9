"""Computes the segment list after a change that removes segments: a trim, a swap of compacted
segments, the end of a grace period, or a step to the object store. Each is one compare-and-set;
what it removes from the list is deleted after it.
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
    Offload,
    Offloaded,
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
from client.log import offloaded as offload
from client.log.segment_pages import NewPage
from client.log.segments import SegmentList


class ListUpdate(NamedTuple):
    """A new list to be stored, and what to do before and after that."""

    segments: SegmentList
    report: Trimmed | Compacted | Released | Offloaded
    dropped: DeleteLedgers
    """To be deleted after it."""
    pages: Sequence[NewPage] = ()
    """To be created before it."""


def trimmed(
    change: Trim | Maintain,
    listed: SegmentList,
    unfolded: ListUnfolded,
    log: LogState,
    limits: SegmentLimits,
    now: Now,
) -> ListUpdate | None:
    """Drop segments that no takeover can need, and move the log start; None: there is nothing to
    do. `unfolded`: `listed`, with its first page unfolded if necessary."""
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
    dropped = found.front[:count]
    after = unfolded.segments.trimmed(count, start)
    after = after._replace(offload=offload.trimmed_away(after.offload, dropped, now.ms))
    there = [item.ledger_id for item in dropped if not item.is_ledger_gone]
    report = Trimmed([item.ledger_id for item in dropped], start)
    return ListUpdate(after, report, DeleteLedgers(there, unfolded.opened))


def compacted(
    change: Compact, listed: SegmentList, found: TrailRead, now: Now
) -> ListUpdate | None:
    """Replace segments by compacted ones; None: the originals are no longer in place
    (COMPACT-CAS)."""
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
    return ListUpdate(listed, Compacted(change.swap, change.done), dropped, pages)


def released(change: Release, listed: SegmentList) -> ListUpdate | None:
    """Remove replaced ledgers whose grace period is over; None: there are none."""
    ledger_ids = listed.compaction.due(change.before_ms)
    if not ledger_ids:
        return None
    after = compaction.released(listed, ledger_ids)
    return ListUpdate(after, Released(ledger_ids), DeleteLedgers(ledger_ids))


def offloaded(
    change: Offload, listed: SegmentList, found: TrailRead, now: Now
) -> ListUpdate | None:
    """Make a step to the object store; None: the list is not what the step was thought for. Only a
    dropped ledger is deleted, after the list says that it is gone (LIST-THEN-DELETE)."""
    step = change.step
    made = None if found.pages is None else offload.after(listed, step, found.pages, now.ms)
    if made is None:
        return None
    ledger_ids = (step.name.ledger_id,) if isinstance(step, offload.Drop) else ()
    dropped = DeleteLedgers(ledger_ids, made.dropped)
    return ListUpdate(made.segments, Offloaded(step), dropped, made.pages)
