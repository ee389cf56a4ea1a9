"""Ten million segments of one partition: what a takeover, a roll and a search read and write is
counted, and bounded.

Pages of segments are made when they are read: nobody has to hold ten million of them.
"""

from __future__ import annotations

import pytest

from broker.partition.core.takeover import Recover, Takeover
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segment_pages import NewPage, Page, PageName, PageRef, ref_of
from client.log.segments import (
    PAGE_ENTRIES,
    Segment,
    SegmentList,
    decode_segments,
    paged,
    segment_count,
)
from client.metadata import paths
from client.metadata.store import Versioned
from client.segments.pages import PAGE_COUNT_MAX, PageCache, SegmentPages
from tests.fakes.segment_lists import PATH, RECORDS, sealed

PAGES = 10_000_000 // PAGE_ENTRIES
COUNT = PAGES * PAGE_ENTRIES
PER_EPOCH = 1_000
LEVELS = 2
HEAD_BYTES_MAX = 100_000
PAGE_BYTES_MAX = 60_000


def segment(number: int) -> Segment:
    return sealed(number, number // PER_EPOCH)


def leaf(number: int) -> Page:
    first = PAGE_ENTRIES * number
    return Page(tuple(map(segment, range(first, first + PAGE_ENTRIES))))


def leaf_ref(number: int) -> PageRef:
    first, last = PAGE_ENTRIES * number, PAGE_ENTRIES * (number + 1) - 1
    end = RECORDS * (last + 1)
    return PageRef(
        PageName(number, LeaderEpoch(first // PER_EPOCH), LedgerId(last + 1)),
        0, PAGE_ENTRIES, Offset(RECORDS * first), Offset(end), 100 * PAGE_ENTRIES, end - 1,
        1000 * first, LeaderEpoch(first // PER_EPOCH), LeaderEpoch(last // PER_EPOCH),
        LedgerId(first), LedgerId(last),
    )  # fmt: skip


class Store:
    """Has nothing but pages, and counts what is read."""

    def __init__(self, made: tuple[NewPage, ...]) -> None:
        self._made = {paths.segment_page(PATH, *new.name): new.page for new in made}
        self.gets = 0

    async def get(self, path: str) -> Versioned:
        self.gets += 1
        page = self._made.get(path)
        if page is None:
            number = paths.page_name(path.rpartition("/")[2])
            assert number is not None
            page = leaf(number[0])
        data = page.encode()
        assert len(data) < PAGE_BYTES_MAX
        return Versioned(data, 0, 0, 0)


@pytest.fixture(scope="module")
def long() -> tuple[SegmentList, tuple[NewPage, ...]]:
    """The head, and the pages of pages."""
    epoch = LeaderEpoch((COUNT - 1) // PER_EPOCH)
    last = Segment(LedgerId(COUNT), Offset(RECORDS * COUNT), epoch, 0)
    leaves = tuple(map(leaf_ref, range(PAGES)))
    flat = SegmentList(epoch, Offset(0), (segment(COUNT - 1), last), False, leaves[:-1], (), PAGES)
    before = leaf(PAGES - 1).segments
    flat = flat._replace(segments=(*before, last)).check()
    return paged(flat, last.ledger_id, PAGE_ENTRIES)


def pages_of(store: Store, cache: PageCache | None = None) -> SegmentPages:
    return SegmentPages(store, PATH, cache)  # type: ignore[arg-type]


def test_the_references_say_what_is_in_the_pages() -> None:
    for number in (0, 1, 7, PAGES - 1):
        assert ref_of(leaf_ref(number).name, leaf(number)) == leaf_ref(number)


def test_the_head_is_small_and_a_takeover_reads_nothing_else(
    long: tuple[SegmentList, tuple[NewPage, ...]],
) -> None:
    head, made = long
    data = head.encode()
    assert len(data) < HEAD_BYTES_MAX
    assert segment_count(head) == COUNT + 1 > 9_990_000
    assert 1 + max(ref.level for ref in head.pages) == LEVELS
    assert len({new.name for new in made}) == len(made)
    takeover = Takeover()
    takeover.start()
    takeover.on_claimed()
    step = takeover.on_list(decode_segments(data), 5)
    assert step == Recover(LedgerId(COUNT - 1))


async def test_searches_read_one_page_per_level_and_few_are_kept(
    long: tuple[SegmentList, tuple[NewPage, ...]],
) -> None:
    head, made = long
    store, cache = Store(made), PageCache()
    pages = pages_of(store, cache)
    for number in range(0, COUNT, COUNT // 97):
        for search in (
            pages.find(head, Offset(RECORDS * number + 4)),
            pages.has(head, LedgerId(number)),
            pages.epoch_end(head, LeaderEpoch(number // PER_EPOCH), Offset(0)),
        ):
            before = store.gets
            await search
            assert store.gets - before <= LEVELS
        assert await pages.find(head, Offset(RECORDS * number + 4)) == segment(number)
        end = RECORDS * PER_EPOCH * (number // PER_EPOCH + 1)
        if number // PER_EPOCH < head.leader_epoch:
            epoch = LeaderEpoch(number // PER_EPOCH)
            assert await pages.epoch_end(head, epoch, Offset(0)) == (epoch, end)
    assert len(cache) <= PAGE_COUNT_MAX


async def test_a_time_is_looked_for_where_it_is(
    long: tuple[SegmentList, tuple[NewPage, ...]],
) -> None:
    """Timestamps grow with offsets here."""
    head, made = long
    store = Store(made)
    newest_ms = RECORDS * (COUNT - 500)

    def wanted(ref: PageRef) -> bool:
        return ref.max_timestamp_ms >= newest_ms

    late = [one async for one in pages_of(store).segments(head, wanted)]
    assert late[-1] == head.segments[-1]
    assert len(late) >= 500
    assert store.gets <= 1 + 500 // PAGE_ENTRIES + LEVELS


async def test_a_trim_opens_the_oldest_page_and_the_head_stays_small(
    long: tuple[SegmentList, tuple[NewPage, ...]],
) -> None:
    head, made = long
    store = Store(made)
    unfolded, opened = await pages_of(store).unfolded(head)
    assert store.gets == len(opened) == LEVELS
    assert unfolded.front == leaf(0).segments
    assert len(unfolded.encode()) < 2 * HEAD_BYTES_MAX
    trimmed = unfolded.trimmed(PAGE_ENTRIES, Offset(RECORDS * PAGE_ENTRIES))
    assert segment_count(trimmed) == COUNT + 1 - PAGE_ENTRIES


def test_rolls_write_one_page_for_as_many_segments_as_it_has(
    long: tuple[SegmentList, tuple[NewPage, ...]],
) -> None:
    listed, written = long[0], 0
    for number in range(COUNT + 1, COUNT + 1 + 4 * PAGE_ENTRIES):
        facts = sealed(number - 1).facts
        assert facts is not None
        rolled, made = paged(listed.rolled(LedgerId(number), 0), LedgerId(number), PAGE_ENTRIES)
        listed = rolled.sealed(facts)
        written += len(made)
        assert len(listed.segments) <= PAGE_ENTRIES + 3
    assert written in (4, 5), "a page each, and perhaps one of pages"
    assert len(listed.encode()) < HEAD_BYTES_MAX
