"""A run of segments replaced by others for the same offsets, in the head of a list or in a page.

Only what continues the list exactly as before may take the place (COMPACT-CAS): the old segments
are all listed, one after the other, and the new ones begin and end where they do, in the same
leader epoch. Whatever has happened to the list meanwhile, a trim, a takeover, another swap, makes
that false, and then nothing is changed.

A page is never changed: a page with the new segments, and new ones of all pages above it, take the
place of the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from client.ids import LedgerId, Offset
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
from client.log.segments import Retired, SegmentList


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
    return page_with(listed, swap.last_offset)


def page_with(listed: SegmentList, offset: Offset) -> PageRef | None:
    """Return the reference in the head below which an offset stands; None: it is in the head."""
    base = listed.items[0].base_offset if listed.items else None
    if base is None or offset < base:
        return None
    item = find_offset(listed.items, offset)
    return item if isinstance(item, PageRef) else None


def swapped(listed: SegmentList, swap: Swap, trail: Sequence[Page], now_ms: int) -> Swapped | None:
    """Return the list after a swap; None: it is not what the swap was made for any more.

    `trail`: the pages above the run, the one that the head names first; none if it is in the head.
    """
    made = replaced(listed, swap, trail, _continues)
    if made is None:
        return None
    state = listed.compaction
    retired = tuple(Retired(ledger_id, now_ms) for ledger_id in swap.old)
    saved_bytes = max(0, _size(_run(_node_of(listed, swap, trail), swap)) - _size(swap.new))
    state = state._replace(
        saved_bytes=state.saved_bytes + saved_bytes, retired=(*state.retired, *retired)
    )
    return made._replace(segments=made.segments._replace(compaction=state).check())


def replaced(
    listed: SegmentList,
    swap: Swap,
    trail: Sequence[Page],
    may: Callable[[Sequence[Segment], Sequence[Segment]], bool],
) -> Swapped | None:
    """Put new segments where old ones stand, if these are all there and `may` says so of both."""
    node = _node_of(listed, swap, trail)
    old = _run(node, swap)
    if not old or not may(old, swap.new):
        return None
    at = node.index(old[0])
    after = (*node[:at], *swap.new, *node[at + len(old) :])
    if trail:
        dropped: list[PageRef] = []
        listed, pages = _in_pages(listed, swap, trail, after, dropped)
        return Swapped(listed.check(), tuple(pages), tuple(dropped))
    if node is listed.segments:
        return Swapped(listed._replace(segments=after).check())
    return Swapped(listed._replace(oldest=after).check())


def _node_of(listed: SegmentList, swap: Swap, trail: Sequence[Page]) -> tuple[Segment, ...]:
    """Return the segments among which the old ones stand, if they stand anywhere."""
    if trail:
        return trail[-1].segments
    is_newest = any(segment.ledger_id == swap.old[0] for segment in listed.segments)
    return listed.segments if is_newest else listed.oldest


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


def _run(node: Sequence[Segment], swap: Swap) -> Sequence[Segment]:
    """Return the old segments as they stand in a node; none if they are not there, one after the
    other."""
    ids = [segment.ledger_id for segment in node]
    if swap.old[0] not in ids:
        return ()
    at = ids.index(swap.old[0])
    old = node[at : at + len(swap.old)]
    return old if tuple(one.ledger_id for one in old) == swap.old else ()


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
        and all(one.stored is None for one in old)
    )


def _in_pages(
    listed: SegmentList,
    swap: Swap,
    trail: Sequence[Page],
    after: tuple[Segment, ...],
    dropped: list[PageRef],
) -> tuple[SegmentList, Sequence[NewPage]]:
    made: list[NewPage] = []

    def put(page: Page) -> PageRef:
        number = listed.page_count + len(made)
        name = PageName(number, listed.leader_epoch, swap.new[0].ledger_id)
        made.append(NewPage(name, page))
        return ref_of(name, page)

    ref = put(trail[-1]._replace(segments=after))
    for parent in reversed(trail[:-1]):
        ref = put(parent._replace(pages=_with_ref(parent.pages, ref, dropped)))
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
