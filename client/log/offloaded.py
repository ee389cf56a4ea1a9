"""What the segment list becomes when segments go to the object store: each step is one change.

    Intend    an object is going to be made of a segment (INTENT); one that was intended before and
              did not come about is buried (OWN-NAME: its name is never used again)
    Commit    the object is there, as a whole, and is the segment's second copy (COMMIT)
    Drop      the object was read back and proven: the ledger goes (VERIFY, DROP)
    Abandon   the object that was intended is not wanted any more
    Reject    the object is not what it should be: it is buried, and the segment copied anew
    Unbury    buried objects are not there any more

A step is made only where the list still is what it was thought for: `after` returns None otherwise,
and nothing is changed. KEEP-TAIL: the ledgers that a takeover recovers and replays are never
dropped, whoever asks. Segments without records are never copied: nobody reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from client.ids import LedgerId, Offset
from client.log.compacted import Swap, Swapped, replaced
from client.log.offload_state import Marked, OffloadState
from client.log.segment import Segment, StoredObject
from client.log.segment_object import ObjectName
from client.log.segment_pages import Page
from client.log.segments import SegmentList

TAIL_COUNT: Final = 2
"""Ledgers that every takeover recovers."""


class Intend(NamedTuple):
    """Make an object of a segment."""

    name: ObjectName
    end_offset: Offset
    """Of the segment."""
    instead_of: ObjectName | None = None
    """The one that was intended before."""


class Commit(NamedTuple):
    """The intended object is there."""

    name: ObjectName
    end_offset: Offset
    stored: StoredObject


class Drop(NamedTuple):
    """The ledger of a segment is not needed any more."""

    name: ObjectName
    end_offset: Offset


class Reject(NamedTuple):
    """The object of a segment, whose ledger is still there, is no good."""

    name: ObjectName
    end_offset: Offset


class Abandon(NamedTuple):
    """The intended object is not wanted any more."""

    name: ObjectName


class Unbury(NamedTuple):
    """These objects were deleted."""

    names: tuple[ObjectName, ...]


Step = Intend | Commit | Drop | Reject | Abandon | Unbury


def name_of(segment: Segment) -> ObjectName | None:
    """Return the name of a segment's object; None: it has none."""
    if segment.stored is None or segment.base_offset is None:
        return None
    return ObjectName(segment.base_offset, segment.ledger_id, segment.stored.attempt)


def last_of(step: Step) -> Offset | None:
    """Return the last offset of the segment that a step changes; None: it changes the head only."""
    return Offset(step.end_offset - 1) if isinstance(step, Commit | Drop | Reject) else None


def after(listed: SegmentList, step: Step, trail: Sequence[Page], now_ms: int) -> Swapped | None:
    """Return the list after a step; None: it is not what the step was thought for.

    `trail`: the pages above the segment, the one that the head names first; none if it is there.
    """
    state = listed.offload
    match step:
        case Intend():
            return _intended(listed, step, now_ms)
        case Unbury(names):
            rest = tuple(grave for grave in state.graves if grave.name not in names)
            return Swapped(listed._replace(offload=state._replace(graves=rest)))
        case Abandon(name):
            if state.intent is None or state.intent.name != name:
                return None
            rest_state = state._replace(intent=None).buried([name], now_ms)
            return Swapped(listed._replace(offload=rest_state))
        case Commit(name, end, stored):
            if state.intent is None or state.intent.name != name:
                return None
            changed = _with_object(listed, step, trail, stored)
            new = state._replace(intent=None, stored_until=max(end, state.stored_until))
        case Drop(name, end):
            if name.ledger_id in needed(listed):
                return None
            changed = _with_object(listed, step, trail, None)
            new = state._replace(local_from=max(end, state.local_from))
        case Reject(name, _):
            changed = _with_object(listed, step, trail, None)
            new = state._replace(stored_until=min(state.stored_until, name.base_offset))
            new = new.buried([name], now_ms)
    if changed is None:
        return None
    return changed._replace(segments=changed.segments._replace(offload=new).check())


def _intended(listed: SegmentList, step: Intend, now_ms: int) -> Swapped | None:
    state = listed.offload
    if (None if state.intent is None else state.intent.name) != step.instead_of:
        return None
    if step.instead_of is not None:
        state = state.buried([step.instead_of], now_ms)
    intent = Marked(step.name, now_ms)
    return Swapped(listed._replace(offload=state._replace(intent=intent, used=True)))


def _with_object(
    listed: SegmentList, step: Commit | Drop | Reject, trail: Sequence[Page],
    stored: StoredObject | None,
) -> Swapped | None:  # fmt: skip
    """Change what is listed of a segment's object."""
    name = step.name
    segments = trail[-1].segments if trail else (*listed.oldest, *listed.segments)
    old = next((one for one in segments if one.ledger_id == name.ledger_id), None)
    if old is None or old.base_offset != name.base_offset or old.end_offset != step.end_offset:
        return None
    match step:
        case Commit():
            new = old._replace(stored=stored)
            is_due = old.stored is None
        case Drop():
            is_due = old.stored is not None and name_of(old) == name and not old.is_ledger_gone
            new = old if old.stored is None else old._replace(
                stored=old.stored._replace(ledger_gone=True)
            )  # fmt: skip
        case Reject():
            is_due = name_of(old) == name and not old.is_ledger_gone
            new = old._replace(stored=None)
    if not is_due:
        return None
    return replaced(listed, Swap((name.ledger_id,), (new,)), trail, lambda was, now: True)


def needed(listed: SegmentList) -> frozenset[LedgerId]:
    """Return the ledgers that a takeover may recover or replay (KEEP-TAIL): the last two, the
    newest sealed one that has entries and all after it, and those whose aborted transactions one of
    these lists: it may never have got the entry for it, and then the takeover counts them anew."""
    newest_first = list(reversed(listed.segments))
    found = {segment.ledger_id for segment in newest_first[:TAIL_COUNT]}
    for segment in newest_first:
        found.add(segment.ledger_id)
        if segment.facts is not None and segment.facts.size_bytes:
            break
    return frozenset(found) | {
        segment.ledger_id for segment in newest_first if _listing_ledger(segment) in found
    }


def _listing_ledger(segment: Segment) -> LedgerId | None:
    """Return the ledger that lists what is aborted in a segment."""
    known = segment.facts.transactions if segment.facts is not None else None
    return None if known is None or known.aborted_at is None else known.aborted_at.ledger_id


def trimmed_away(state: OffloadState, segments: Sequence[Segment], now_ms: int) -> OffloadState:
    """Return the state once segments are no longer listed: their objects are buried, and so is one
    that is being made of any of them."""
    names = [name for name in map(name_of, segments) if name is not None]
    if state.intent is not None:
        ids = {segment.ledger_id for segment in segments}
        if state.intent.name.ledger_id in ids:
            names.append(state.intent.name)
            state = state._replace(intent=None)
    return state.buried(names, now_ms) if names else state
