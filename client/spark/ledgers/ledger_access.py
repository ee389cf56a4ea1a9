"""Read ledgers from Spark's synchronous code, through an event loop in a thread of its own.

Only plain reads reach the bookies, with the ledger client's own rules for replicas and digests. No
ledger can be fenced from here: nothing opens one for recovery, and `metadata_view.py` cannot write.

Splits name bookies by id. An id of the form `host:port` is tried as an address first, so that a
thousand tasks can read without one of them asking ZooKeeper; only for other ids, and where nobody
answers, are the registrations looked up.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import random
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop

from client.errors import BookieUnavailable, LedgerError, LogCorrupt, NoNode
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookie_directory import Address, BookieDirectory, parse_service_info
from client.ledger.bookies.bookies import Bookies
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.read.batch_read import BatchReads
from client.ledger.read.range_read import RangeRead
from client.ledger.read.tail import read_lac
from client.ledger.recoveries import unlock
from client.ledger.standalone import WallClock
from client.log.segment_pages import Item
from client.log.segments import Segment, SegmentList, decode_segments
from client.metadata import paths
from client.security.cluster_security import OPEN_CLUSTER, read_cluster_security
from client.segments.pages import PageCache, SegmentPages
from client.spark.ledgers.metadata_view import MetadataView
from client.wire.bookkeeper.entry import Entry, EntryCodec

T = TypeVar("T")

RUN_ENTRIES_MAX: Final = 512
"""Entries of one read: what they may weigh is the caller's to bound."""

_BUFFERS_MAX: Final = 5
"""Receive buffers kept: a task has two answers under way, and decodes some megabytes of others."""

_STOP_S: Final = 2.0
"""How long a process that ends waits for the thread."""


class BookieAddresses(BookieDirectory):
    """Where bookies listen: by their ids if possible, else by their registrations."""

    def __init__(self, view: MetadataView) -> None:
        super().__init__(view, paths.LEDGERS_ROOT)

    async def start(self) -> None:
        """Nothing is listed ahead of time."""

    async def address(self, bookie: BookieId) -> Address:
        """See there. A bookie that was asked for counts as there from then on."""
        if bookie not in self.writable:
            self.writable = (*self.writable, bookie)
        if bookie not in self._doubtful and bookie not in self._infos:
            try:
                return parse_service_info(bookie, b"").address
            except BookieUnavailable:
                pass  # it has a name of its own
        return await super().address(bookie)


class LedgerAccess:
    """The ledgers of one cluster. Coroutines run in the loop of `call` and `begin`.

    Implements `plan.ledger_splits.LedgerSource`.
    """

    def __init__(self, uri: str, speculative_ms: int, security_file: str = "") -> None:
        """Connects to nothing. Raises ConfigError."""
        security = read_cluster_security(Path(security_file)) if security_file else OPEN_CLUSTER
        self._view = MetadataView(uri, security)
        config = LedgerClientConfig(
            speculative_read_ms=speculative_ms,
            speculative_read_max_ms=max(4 * speculative_ms, 1000),
            read_window_entries=RUN_ENTRIES_MAX,
            batch_buffers_max=_BUFFERS_MAX,
        )
        bookies = Bookies(BookieAddresses(self._view), config, security=security)
        self._client = LedgerClient(
            self._view, rng=random.SystemRandom(), clock=WallClock(), config=config, bookies=bookies
        )
        self._batches = BatchReads(self._client.context)
        self._pages = PageCache()
        self._codecs: dict[LedgerId, EntryCodec] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="quire-ledgers", daemon=True
        )
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine and return its result. Raises TimeoutError, and what it raises."""
        future = self.begin(work)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine beside the caller."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Close connections and session, and end the thread."""
        self.call(self._close())
        self.stop()
        self._loop.close()

    def stop(self) -> None:
        """End the thread; what it still does is cancelled."""
        with contextlib.suppress(TimeoutError):
            self.call(_cancel_others(), _STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)

    async def segments(self, topic_id: str, partition: int, start: int, end: int) -> list[Segment]:
        """Pages of the list are read as far as they overlap the range, and kept.

        A trim may delete a page while it is looked for: then the list is read again, and a page
        that the same list still names is lost.
        """
        path = paths.partition(topic_id, partition)
        before = None
        while True:
            listed = await self._segment_list(path)
            if listed is None or listed.deleted:
                return []
            try:
                return await _overlapping(
                    SegmentPages(self._view, path, self._pages), listed, start, end
                )
            except NoNode as error:
                if listed == before:
                    raise LogCorrupt(f"{path} names a page that is not there: {error}") from error
                before = listed
                await self._view.sync(path)

    async def _segment_list(self, path: str) -> SegmentList | None:
        try:
            return decode_segments((await self._view.get(path)).data)
        except NoNode:
            return None
        except LogCorrupt as error:
            raise LogCorrupt(f"{path}: {error}") from error

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        return await self._client.describe(ledger_id)

    async def last_confirmed(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> EntryId:
        codec = self._codec(ledger_id, metadata)
        return await read_lac(metadata, codec, self._client.context.bookies)

    async def entry(self, ledger_id: LedgerId, metadata: LedgerMetadata, entry_id: int) -> Entry:
        codec = self._codec(ledger_id, metadata)
        at = EntryId(entry_id)
        (entry,) = await RangeRead(at, at, metadata, codec, self._client.context).run()
        return entry

    async def read(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, first: int, last: int, size_max: int
    ) -> list[Entry]:
        """Return entries `first`..`last`; they are confirmed for certain.

        They are asked for in answers of up to `size_max` bytes, where bookies can do that. If no
        replica has one of them, their places are looked up anew: bookies may have been replaced
        since `metadata` was read. Raises LedgerError, MetadataError.
        """
        try:
            return await self._read(ledger_id, metadata, first, last, size_max)
        except LedgerError:
            current = await self.describe(ledger_id)
            if current.fragments == metadata.fragments:
                raise
        return await self._read(ledger_id, current, first, last, size_max)

    async def _read(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, first: int, last: int, size_max: int
    ) -> list[Entry]:
        codec = self._codec(ledger_id, metadata)
        return await self._batches.read(EntryId(first), EntryId(last), metadata, codec, size_max)

    def _codec(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> EntryCodec:
        codec = self._codecs.get(ledger_id)
        if codec is None:
            # The password is in the metadata, for those who may read that.
            codec = self._codecs[ledger_id] = unlock(ledger_id, metadata, None)[0]
        return codec

    async def _close(self) -> None:
        await self._client.close()
        await self._view.close()


async def _overlapping(
    pages: SegmentPages, listed: SegmentList, start: int, end: int
) -> list[Segment]:
    """Return the segments that may hold offsets of [start, end)."""

    def overlaps(item: Item) -> bool:
        if item.base_offset is None or item.base_offset >= end:
            return False
        return item.end_offset is None or item.end_offset > start

    return [segment async for segment in pages.segments(listed, overlaps) if overlaps(segment)]


async def _cancel_others() -> None:
    others = asyncio.all_tasks().difference({asyncio.current_task()})
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


_shared: dict[tuple[str, int, str, int], LedgerAccess] = {}


def shared(uri: str, speculative_ms: int, security_file: str = "") -> LedgerAccess:
    """Return this process's access to a cluster; connections stay open between tasks."""
    key = (uri, speculative_ms, security_file, os.getpid())
    if key not in _shared:
        if not _shared:
            # A loop that still runs while the interpreter is taken down under it crashes.
            atexit.register(_stop_all, os.getpid())
        _shared[key] = LedgerAccess(uri, speculative_ms, security_file)
    return _shared[key]


def _stop_all(pid: int) -> None:
    """Stop the threads of a process that ends; its connections end with it."""
    for (*_, owner), access in _shared.items():
        if owner == pid == os.getpid():
            access.stop()
