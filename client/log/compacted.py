"""A run of segments replaced by others for the same offsets, in the head of a list or in a page.

Only what continues the list exactly as before may take the place (COMPACT-CAS): the old segments
are all listed, one after the other, and the new ones begin and end where they do, in the same
leader epoch. Whatever has happened to the list meanwhile, a trim, a takeover, another swap, makes
that false, and then nothing is changed.

A page is never changed: a page with the new segments, and new ones of all pages above it, take the
place of the old ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from client.ids import LedgerId, Offset
from client.log.compaction_state import Retired
from client.log.segment import Segment
from client.log.segment_pages import (
    NewPage,
    Page,
    PageName,
    PageRef,
    check_run,
    find_offset,
    ref_of,
)
from client.log.segments import SegmentList


class Swap(NamedTuple):
    """What a round of compaction has made of a run of segments."""

    old: tuple[LedgerId, ...]
    new: tuple[Segment, ...]
    """For the same offsets, of which there is at least one."""

    @property
    def last_offset(self) -> Offset:
        """The last offset of the run."""
        facts = self.new[-1].facts
        assert facts is not None
        return facts.last_offset


class Round(NamedTuple):
    """A round of compaction that is complete."""

    until: Offset
    """What is below is clean."""
    horizon_ms: int
    """When the first tombstone in it may go; -1: it has none."""


class Swapped(NamedTuple):
    """The list with a swap made, the pages to be written before it, and those that it lets go."""

    segments: SegmentList
    pages: tuple[NewPage, ...] = ()
    dropped: tuple[PageRef, ...] = ()


def page_of(listed: SegmentList, swap: Swap) -> PageRef | None:
    """Return the reference in the head below which a run stands; None: it is in the head."""
    base = listed.items[0].base_offset if listed.items else None
    if base is None or swap.last_offset < base:
        return None
    item = find_offset(listed.items, swap.last_offset)
    return item if isinstance(item, PageRef) else None


def swapped(listed: SegmentList, swap: Swap, trail: Sequence[Page], now_ms: int) -> Swapped | None:
    """Return the list after a swap; None: it is not what the swap was made for any more.

    `trail`: the pages above the run, the one that the head names first; none if it is in the head.
    """
    pages: Sequence[NewPage] = ()
    dropped: list[PageRef] = []
    if trail:
        run = _run(trail[-1].segments, swap)
        if run is None:
            return None
        listed, pages = _in_pages(listed, swap, trail, run, dropped)
    elif (run := _run(listed.segments, swap)) is not None:
        listed = listed._replace(segments=run.after)
    elif (run := _run(listed.oldest, swap)) is not None:
        listed = listed._replace(oldest=run.after)
    else:
        return None
    state = listed.compaction
    retired = tuple(Retired(ledger_id, now_ms) for ledger_id in swap.old)
    state = state._replace(
        saved_bytes=state.saved_bytes + run.saved_bytes, retired=(*state.retired, *retired)
    )
    return Swapped(listed._replace(compaction=state).check(), tuple(pages), tuple(dropped))


def completed(listed: SegmentList, done: Round, now_ms: int) -> SegmentList:
    """Return the list after a round that is complete."""
    state = listed.compaction._replace(
        cleaned_until=max(done.until, listed.compaction.cleaned_until),
        cleaned_ms=now_ms,
        next_horizon_ms=done.horizon_ms,
    )
    return listed._replace(compaction=state).check()


def released(listed: SegmentList, ledger_ids: Collection[LedgerId]) -> SegmentList:
    """Return the list without ledgers that were replaced."""
    state = listed.compaction
    rest = tuple(one for one in state.retired if one.ledger_id not in ledger_ids)
    return listed._replace(compaction=state._replace(retired=rest)).check()


class _Run(NamedTuple):
    """The segments of a node after a swap, and what that saves."""

    after: tuple[Segment, ...]
    saved_bytes: int


def _run(segments: tuple[Segment, ...], swap: Swap) -> _Run | None:
    """Make a swap among the segments of a node; None: the old ones are not in it as they were."""
    ids = [segment.ledger_id for segment in segments]
    if swap.old[0] not in ids:
        return None
    at = ids.index(swap.old[0])
    until = at + len(swap.old)
    old = segments[at:until]
    if tuple(ids[at:until]) != swap.old or not _continues(old, swap.new):
        return None
    saved_bytes = max(0, _size(old) - _size(swap.new))
    return _Run((*segments[:at], *swap.new, *segments[until:]), saved_bytes)


def _size(segments: Sequence[Segment]) -> int:
    return sum(one.facts.size_bytes for one in segments if one.facts is not None)


def _continues(old: Sequence[Segment], new: Sequence[Segment]) -> bool:
    try:
        check_run(old)
        check_run(new)
    except AssertionError:
        return False
    return (
        (old[0].base_offset, old[-1].end_offset) == (new[0].base_offset, new[-1].end_offset)
        and {one.leader_epoch for one in (*old, *new)} == {old[0].leader_epoch}
        and all(one.cleaned for one in new)
    )


def _in_pages(
    listed: SegmentList, swap: Swap, trail: Sequence[Page], run: _Run, dropped: list[PageRef]
) -> tuple[SegmentList, Sequence[NewPage]]:
    made: list[NewPage] = []

    def put(page: Page) -> PageRef:
        number = listed.page_count + len(made)
        name = PageName(number, listed.leader_epoch, swap.new[0].ledger_id)
        made.append(NewPage(name, page))
        return ref_of(name, page)

    ref = put(Page(run.after))
    for parent in reversed(trail[:-1]):
        ref = put(Page(pages=_with_ref(parent.pages, ref, dropped)))
    pages = _with_ref(listed.pages, ref, dropped)
    return listed._replace(pages=pages, page_count=listed.page_count + len(made)), made


def _with_ref(
    refs: tuple[PageRef, ...], new: PageRef, dropped: list[PageRef]
) -> tuple[PageRef, ...]:
    """Return references with the new one in the place of that for the same offsets."""
    at = next(
        at
        for at, ref in enumerate(refs)
        if ref.base_offset == new.base_offset and ref.end_offset == new.end_offset
    )
    dropped.append(refs[at])
    return (*refs[:at], new, *refs[at + 1 :])
