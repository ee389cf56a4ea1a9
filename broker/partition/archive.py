"""Reads segments whose copy is in the object store, as if they were ledgers.

An object holds the entries of its ledger under their own ids (`client/log/segment_object.py`), so
whoever reads ledgers reads it: its reader has the same interface. The footer is read when it is
opened, by one request most often. Blocks are fetched in runs of a few megabytes, several at once,
checked, and kept for whoever comes next: those used last, of all partitions together.

NO-LONGER: nobody waits for the store longer than `wait_s`. What was asked for goes on, and is there
for whoever asks again, as consumers do. So a store that is slow or away delays those who read old
data, and nobody who reads new data in the same request.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Generic, TypeVar

from client.errors import LogCorrupt, ObjectStoreError, ReadFailed
from client.ids import EntryId, LedgerId
from client.log.offloaded import name_of
from client.log.segment import Segment
from client.log.segment_object import (
    TAIL_BYTES,
    Footer,
    footer_bytes,
    open_block,
    read_footer,
)
from client.node import background
from client.objects.store import ObjectStore
from client.wire.bookkeeper.entry import Entry

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_RUN_BYTES: Final = 2 << 20
"""What one request asks for at most, but for a single larger block."""
Run = tuple[int, int]
"""Blocks of an object by their indexes, [start, end)."""
_FOOTERS_MAX: Final = 256
"""Footers that are kept: some ten MB, of segments of a GiB."""


class StillReading(ReadFailed):
    """The object store has not answered yet. It will, and whoever asks again gets it."""


async def fetch_footer(store: ObjectStore, path: str) -> Footer:
    """Read what an object is, in one request or two. Raises ObjectStoreError; LogCorrupt: it is no
    whole object."""
    tail = await store.tail(path, TAIL_BYTES)
    size = footer_bytes(tail.data, tail.size)
    if size > len(tail.data):
        tail = await store.tail(path, size)
    return read_footer(tail.data, tail.size)


class _Kept(Generic[T]):
    """Pieces that were asked for, by name, those used last."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._asked: dict[object, tuple[asyncio.Task[T], int]] = {}
        self.size = 0

    def get(self, key: object) -> asyncio.Task[T] | None:
        """Return what was asked for; it may be under way still."""
        found = self._asked.pop(key, None)
        if found is None:
            return None
        self._asked[key] = found
        return found[0]

    def put(self, key: object, task: asyncio.Task[T], size: int) -> None:
        """Keep what is asked for now, and let go of what was not used for long. What fails is
        forgotten, so that it is asked for again."""
        self._asked[key] = task, size
        self.size += size
        task.add_done_callback(lambda done: self._on_done(key, done))
        for old, (one, _) in [*self._asked.items()]:
            if self.size <= self._size_max:
                return
            if one.done() and one is not task:
                self._drop(old)

    def has_room(self, size: int) -> bool:
        """Whether so much more may be asked for now: what is under way is not let go of."""
        under_way = sum(each for task, each in self._asked.values() if not task.done())
        return not under_way or under_way + size <= self._size_max

    def clear(self) -> None:
        """Let go of everything, also of what is under way."""
        for key, (task, _) in [*self._asked.items()]:
            task.cancel()
            self._drop(key)

    def _on_done(self, key: object, done: asyncio.Task[T]) -> None:
        failed = done.cancelled() or done.exception() is not None
        if failed and self._asked.get(key, (None, 0))[0] is done:
            self._drop(key)

    def _drop(self, key: object) -> None:
        self.size -= self._asked.pop(key)[1]


class Archive:
    """What all partitions share: the store, and what was read of it."""

    def __init__(
        self, store: ObjectStore, *, cache_bytes_max: int = 64 << 20, wait_s: float = 0.5
    ) -> None:
        self.store = store
        self._wait_s = wait_s
        self._footers: _Kept[Footer] = _Kept(_FOOTERS_MAX)
        self._runs: _Kept[dict[int, Sequence[Entry]]] = _Kept(cache_bytes_max)
        self.read_bytes = 0
        self.failures = 0
        """Requests that failed."""
        self.reason = ""
        """Why the last one failed; empty: it did not."""

    @property
    def cached_bytes(self) -> int:
        """Bytes of blocks that are kept, or on their way."""
        return self._runs.size

    async def open(self, folder: str, segment: Segment) -> ArchivedReader:
        """Open a segment's object. Raises StillReading, ReadFailed, LogCorrupt."""
        name, stored = name_of(segment), segment.stored
        assert name is not None
        assert stored is not None
        path = name.path(folder)
        asked = self._footers.get(path)
        if asked is None:
            asked = background.begin(self._guarded(fetch_footer(self.store, path)), "archive")
            self._footers.put(path, asked, 1)
        footer = await self._wait(asked)
        if (footer.size, footer.crc) != (stored.footer_bytes, stored.footer_crc):
            raise LogCorrupt(f"{self.store.place}: {path} is not the object that was listed")
        return ArchivedReader(self, path, footer)

    async def blocks(
        self, path: str, footer: Footer, runs: Sequence[Run], first: int, last: int
    ) -> list[Sequence[Entry]]:
        """Return the entries of the blocks `first` to `last` of an object, fetched in `runs` where
        they are not there; of the first ones only, if the others are not there yet. So whoever asks
        again gets on, however little memory there is. Raises StillReading, ReadFailed, LogCorrupt.
        """
        asked: dict[int, asyncio.Task[dict[int, Sequence[Entry]]]] = {}
        for start, end in runs[bisect_right(runs, (first, len(footer.blocks))) - 1 :]:
            if start > last:
                break
            key = path, start
            task = self._runs.get(key)
            if task is None:
                size = footer.blocks[end - 1].end - footer.blocks[start].position
                if not self._runs.has_room(size):
                    break
                work = self._guarded(self._fetch(path, footer, start, end))
                task = background.begin(work, "archive")
                self._runs.put(key, task, size)
            asked.update(dict.fromkeys(range(start, end), task))
        found: list[Sequence[Entry]] = []
        for index in range(first, last + 1):
            if index not in asked and not found:
                raise StillReading("what is read of the object store waits for room")
            if index not in asked or (found and not asked[index].done()):
                break
            found.append((await self._wait(asked[index]))[index])
        return found

    async def close(self) -> None:
        """Let go of everything, and of the store."""
        self._footers.clear()
        self._runs.clear()
        await self.store.close()

    async def _fetch(
        self, path: str, footer: Footer, start: int, end: int
    ) -> dict[int, Sequence[Entry]]:
        at = footer.blocks[start].position
        data = memoryview(await self.store.read(path, at, footer.blocks[end - 1].end))
        self.read_bytes += len(data)
        found: dict[int, Sequence[Entry]] = {}
        for index in range(start, end):
            block = footer.blocks[index]
            found[index] = open_block(footer, index, data[block.position - at : block.end - at])
        return found

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, and note how the store answers. Raises ReadFailed, LogCorrupt."""
        try:
            found = await work
        except (ObjectStoreError, LogCorrupt) as error:
            self.failures += 1
            self.reason = str(error)
            _LOG.warning("archive.unread store=%s error=%r", self.store.place, error)
            if isinstance(error, LogCorrupt):
                raise
            raise ReadFailed(f"the object store: {error}") from error
        self.reason = ""
        return found

    async def _wait(self, asked: asyncio.Task[T]) -> T:
        await asyncio.wait([asked], timeout=self._wait_s)
        if not asked.done():
            raise StillReading(f"{self.store.place} has not answered within {self._wait_s:g} s")
        return asked.result()


class ArchivedReader:
    """Implements `broker.partition.ledgers.Reader` over an object."""

    def __init__(self, archive: Archive, path: str, footer: Footer) -> None:
        self._archive = archive
        self._path = path
        self.footer = footer
        self._runs = _runs(footer)

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger that it is a copy of."""
        return self.footer.description.segment.ledger_id

    @property
    def last_entry(self) -> EntryId:
        """See `Reader`."""
        return self.footer.description.last_entry

    @property
    def length(self) -> int:
        """See `Reader`."""
        return self.footer.description.payload_bytes

    async def read(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        """See `Reader`; it may be the first entries only. Raises StillReading, ReadFailed,
        LogCorrupt."""
        footer = self.footer
        start, end = footer.block_of(first), footer.block_of(last)
        found = await self._archive.blocks(self._path, footer, self._runs, start, end)
        skipped = first - footer.blocks[start].first_entry
        entries = [entry for block in found for entry in block]
        return entries[skipped : skipped + last - first + 1]

    async def read_some(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        """See `Reader`: what is in the block of `first`."""
        block = self.footer.blocks[self.footer.block_of(first)]
        return await self.read(first, min(last, block.last_entry))


def _runs(footer: Footer) -> list[Run]:
    """Divide an object's blocks into runs that are fetched by one request each."""
    runs: list[Run] = []
    start = 0
    for index, block in enumerate(footer.blocks):
        if index > start and block.end - footer.blocks[start].position > _RUN_BYTES:
            runs.append((start, index))
            start = index
    if footer.blocks:
        runs.append((start, len(footer.blocks)))
    return runs
