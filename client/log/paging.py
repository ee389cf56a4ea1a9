"""How a segment list moves between one node and pages: the same list in another form.

When it moves, and what is written first, is the leader's business.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from client.ids import LedgerId
from client.log.segment import Segment
from client.log.segment_pages import LEVEL_MAX, NewPage, Page, PageName, PageRef, ref_of
from client.log.segments import SegmentList


class Paged(NamedTuple):
    """A list in the form in which it is written, and the pages to be written before it."""

    segments: SegmentList
    pages: tuple[NewPage, ...]


def paged(listed: SegmentList, ledger_id: LedgerId, page_entries: int) -> Paged:
    """Move what is more than a page of segments, or of references, into pages.

    It is the same list in another form. `ledger_id`: the one that the change adds, for the
    names. NEWEST-IN-HEAD: the newest sealed segment whose ledger has entries stays, with what
    follows it, since a takeover looks no further back; and so does one whose aborted transactions
    are listed in a ledger that follows that one, which may never get its first entry.
    """
    pages = [*listed.pages]
    left = 0
    made: list[NewPage] = []

    def put(page: Page) -> PageRef:
        number = listed.page_count + len(made)
        name = PageName(number, listed.leader_epoch, ledger_id)
        made.append(NewPage(name, page))
        return ref_of(name, page)

    for _ in range(_movable(listed.segments) // page_entries):
        pages.append(put(Page(listed.segments[left : left + page_entries])))
        left += page_entries
    end = len(pages)
    for level in range(LEVEL_MAX):
        start = _run_start(pages, end, level)
        while end - start >= page_entries:
            run = pages[start : start + page_entries]
            pages[start : start + page_entries] = [put(Page(pages=tuple(run)))]
            start += 1
            end -= page_entries - 1
        end = start
    changed = listed._replace(
        pages=tuple(pages),
        segments=listed.segments[left:],
        page_count=listed.page_count + len(made),
    )
    return Paged(changed.check(), tuple(made))


def unfolded(listed: SegmentList, page: Page) -> SegmentList:
    """Put the content of the first page in its place. `oldest` is empty."""
    assert not listed.oldest
    return listed._replace(oldest=page.segments, pages=(*page.pages, *listed.pages[1:])).check()


def segment_count(listed: SegmentList) -> int:
    """Return how many segments a list has."""
    inline = len(listed.oldest) + len(listed.segments)
    return inline + sum(ref.segment_count for ref in listed.pages)


def _movable(segments: Sequence[Segment]) -> int:
    """Return how many of the oldest segments may leave the head (NEWEST-IN-HEAD)."""
    for index in range(len(segments) - 1, -1, -1):
        facts = segments[index].facts
        if facts is not None and facts.size_bytes:
            followers = {segment.ledger_id for segment in segments[index + 1 :]}
            return _first_listed_in(segments[: index + 1], followers)
    return 0


def _first_listed_in(segments: Sequence[Segment], ledger_ids: Container[LedgerId]) -> int:
    """Return which segment is the first whose aborted transactions are listed in one of these
    ledgers; the last one, if there is none."""
    for index, segment in enumerate(segments):
        transactions = segment.facts.transactions if segment.facts is not None else None
        place = transactions.aborted_at if transactions is not None else None
        if place is not None and place.ledger_id in ledger_ids:
            return index
    return len(segments) - 1


def _run_start(pages: Sequence[PageRef], end: int, level: int) -> int:
    """Return where the references of a level begin that end at `end`."""
    start = end
    while start and pages[start - 1].level == level:
        start -= 1
    return start
