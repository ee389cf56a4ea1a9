"""Reads the pages of a partition's segment list, a few of them at a time, however many there are.

Pages never change, so what was read once is kept: the ones used last, of all partitions of a
process together. Whoever has read the head of a list can read its pages: they were made before, and
what a session sees never goes back. So a page that is missing, which raises NoNode, was deleted by
a trim, and then the list that names it is old; or it is lost. Callers read the list again and
compare.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segment_pages import (
    Item,
    Page,
    PageName,
    PageRef,
    decode_page,
    find_epoch_end,
    find_offset,
)
from client.log.segments import Segment, SegmentList, epoch_end, unfolded
from client.metadata import paths
from client.metadata.store import MetadataStore

PAGE_COUNT_MAX: Final = 64
"""Pages kept by default: some 8 MB, with 256 segments in each."""


class PageCache:
    """The pages that were used last."""

    def __init__(self, page_count_max: int = PAGE_COUNT_MAX) -> None:
        self._page_count_max = page_count_max
        self._pages: dict[tuple[str, PageName], Page] = {}
        """Least recently used first."""

    def get(self, partition_path: str, name: PageName) -> Page | None:
        """Return a page if it is there."""
        page = self._pages.pop((partition_path, name), None)
        if page is not None:
            self._pages[partition_path, name] = page
        return page

    def put(self, partition_path: str, name: PageName, page: Page) -> None:
        """Keep a page, and let go of others."""
        self._pages[partition_path, name] = page
        while len(self._pages) > self._page_count_max:
            del self._pages[next(iter(self._pages))]

    def __len__(self) -> int:
        return len(self._pages)


class Unfolded(NamedTuple):
    """A list whose oldest segments are in the head, and the pages that it does not need any more
    once it is written like that."""

    segments: SegmentList
    opened: tuple[PageRef, ...]


class SegmentPages:
    """The pages of one partition's list."""

    def __init__(
        self, store: MetadataStore, partition_path: str, cache: PageCache | None = None
    ) -> None:
        self._store = store
        self._path = partition_path
        self._cache = PageCache() if cache is None else cache

    async def page(self, ref: PageRef) -> Page:
        """Return a page. Raises MetadataError, NoNode if it is missing, LogCorrupt."""
        page = self._cache.get(self._path, ref.name)
        if page is None:
            path = paths.segment_page(self._path, *ref.name)
            try:
                page = decode_page((await self._store.get(path)).data, ref)
            except LogCorrupt as error:
                raise LogCorrupt(f"{path}: {error}") from error
            self._cache.put(self._path, ref.name, page)
        return page

    async def find(self, listed: SegmentList, offset: Offset) -> Segment:
        """Like `find_offset`, in as many reads as there are levels. Raises as `page`."""
        item = find_offset(listed.items, offset)
        while isinstance(item, PageRef):
            item = find_offset((await self.page(item)).items, offset)
        return item

    async def trail(self, listed: SegmentList, offset: Offset) -> tuple[Page, ...]:
        """Return the pages below which an offset stands, the one that the head names first; none if
        its segment is in the head. Raises as `page`."""
        found: list[Page] = []
        item = find_offset(listed.items, offset)
        while isinstance(item, PageRef):
            found.append(await self.page(item))
            item = find_offset(found[-1].items, offset)
        return tuple(found)

    async def epoch_end(
        self, listed: SegmentList, epoch: LeaderEpoch, end_offset: Offset
    ) -> tuple[LeaderEpoch, Offset]:
        """Like `segments.epoch_end`, in as many reads as there are levels. Raises as `page`."""
        found = epoch_end(listed, epoch, end_offset)
        while isinstance(found, PageRef):
            inside = find_epoch_end((await self.page(found)).items, epoch)
            if isinstance(inside, PageRef):
                found = inside
                continue
            known, end = inside
            assert known is not None, "the page begins with an epoch up to the one asked for"
            found = known, end
        return found

    async def has(self, listed: SegmentList, ledger_id: LedgerId) -> bool:
        """Whether the ledger is listed, and not as gone (PAGE-LOOK). Raises as `page`."""
        if any(retired.ledger_id == ledger_id for retired in listed.compaction.retired):
            return True
        async with aclosing(self.segments(listed, lambda ref: ref.may_hold(ledger_id))) as walk:
            async for segment in walk:
                if segment.ledger_id == ledger_id:
                    return not segment.is_ledger_gone
        return False

    async def segments(
        self,
        listed: SegmentList,
        wanted: Callable[[PageRef], bool] = lambda ref: True,
        *,
        newest_first: bool = False,
    ) -> AsyncGenerator[Segment, None]:
        """Walk the list, but for pages that are not `wanted`. Raises as `page`."""
        step = -1 if newest_first else 1
        left: list[Item] = [*listed.items[::-step]]
        while left:
            item = left.pop()
            if not isinstance(item, PageRef):
                yield item
            elif wanted(item):
                left += (await self.page(item)).items[::-step]

    async def runs(self, listed: SegmentList) -> AsyncGenerator[tuple[Segment, ...], None]:
        """Walk the list, all segments of one node at a time. Raises as `page`."""
        if listed.oldest:
            yield listed.oldest
        left = [*reversed(listed.pages)]
        while left:
            page = await self.page(left.pop())
            if page.segments:
                yield page.segments
            left += reversed(page.pages)
        yield listed.segments

    async def names(self, listed: SegmentList) -> dict[PageName, None]:
        """Return the names of all pages of a list. Reads only those of pages. Raises as `page`."""
        found: dict[PageName, None] = {}
        left = [*listed.pages]
        while left:
            ref = left.pop()
            found[ref.name] = None
            if ref.level:
                left += (await self.page(ref)).pages
        return found

    async def unfolded(self, listed: SegmentList) -> Unfolded:
        """Open the first page, so that `front` has segments. Raises as `page`."""
        opened: list[PageRef] = []
        while listed.pages and not listed.oldest:
            opened.append(listed.pages[0])
            listed = unfolded(listed, await self.page(listed.pages[0]))
        return Unfolded(listed, tuple(opened))
