"""Reads a partition's ledgers: finds the batches at an offset or a timestamp that the tail cache
does not have.

It goes through the given segment list, opens ledgers when they are needed, and keeps a few of them
open. It never returns anything at or above the given bound, the high watermark at the time of the
call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from broker.errors import LogReadFailed
from broker.partition.aborted_reader import AbortedReader
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.ledger_views import LedgerView
from broker.partition.ledgers import Writer
from broker.partition.log_services import LogServices
from broker.partition.tail_cache import READ_BATCHES_MAX, Fetched
from client.errors import LedgerError, LogCorrupt, MetadataError, RemoteProtocolError
from client.ids import EntryId, LedgerId, Offset
from client.log.aborted_transactions import AbortedTransaction
from client.log.entry_format import batch_headers, is_internal, take_batches
from client.log.segment_pages import PageRef
from client.log.segments import Segment, SegmentList
from client.segments.pages import SegmentPages
from client.wire.bookkeeper.entry import Entry
from client.wire.kafka.batches.record_scan import OpenedRecords, first_not_older
from client.wire.kafka.batches.records import BatchHeader, Buffer

_SCAN_BYTES: Final = 1024 * 1024


class LogReader:
    """Reads the ledgers of one partition."""

    def __init__(self, services: LogServices, pages: SegmentPages) -> None:
        self._services = services
        self._pages = pages
        self._active: ActiveSegment | None = None
        """The segment that is being written."""
        self._views: dict[LedgerId, LedgerView] = {}
        """Least recently used first."""
        self._own: dict[LedgerId, LedgerView] = {}
        """Ledgers that this leader writes."""
        self._aborted = AbortedReader(pages, self._read_entry)

    def add_own(self, writer: Writer, active: ActiveSegment) -> None:
        """Add the ledger that this leader writes now: it is read through its writer, and searched
        by its own indexes."""
        self._active = active
        self._aborted.on_begun(active)
        self._own[writer.ledger_id] = LedgerView(
            writer.reader(),
            active.offsets,
            active.timestamps,
            self._services.limits,
            self._services.ahead,
        )

    def on_sealed(self, ledger_id: LedgerId) -> None:
        """A ledger of this leader was closed: it is now cached like any other one."""
        view = self._own.pop(ledger_id, None)
        if view is not None:
            self._views[ledger_id] = view
        self._aborted.on_sealed(ledger_id)

    def forget(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Forget ledgers that were removed from the list."""
        for ledger_id in ledger_ids:
            for views in (self._own, self._views):
                view = views.pop(ledger_id, None)
                if view is not None:
                    view.close()
            self._aborted.forget(ledger_id)

    def close(self) -> None:
        """The partition is no longer led here: drop what was read ahead."""
        self.forget([*self._own, *self._views])

    async def read(
        self,
        listed: SegmentList,
        offset: Offset,
        limit: Offset,
        size_max: int,
        *,
        at_least_one: bool,
    ) -> Fetched:
        """Return whole batches below `limit`, from the batch that holds `offset` onwards.

        At most `size_max` bytes, except that `at_least_one` batch is returned whatever its size.
        Raises LogReadFailed, LogCorrupt.
        """
        if offset >= limit:
            return Fetched([], offset, 0)
        place = offset
        while True:
            try:
                segment = await self._pages.find(listed, place)
            except MetadataError as error:
                raise _no_page(error) from error
            view = await self._view(segment.ledger_id, segment.base_offset)
            found = await self._read_ledger(view, place, limit, size_max, at_least_one=at_least_one)
            if found is not None:
                return found
            end = segment.end_offset
            if not segment.cleaned or end is None:
                raise LogCorrupt(f"ledger {segment.ledger_id} has no batch at offset {offset}")
            if end >= limit:
                return Fetched([], offset, 0)
            place = end  # NEXT-SEGMENT: compaction has removed everything from the offset on

    def with_aborted(self, listed: SegmentList, offset: Offset, fetched: Fetched) -> Fetched | None:
        """Add the aborted transactions of what was read from `offset` on; None: that takes I/O."""
        if not fetched.buffers:
            return fetched
        aborted = self._aborted.find_now(listed, offset, fetched.next_offset)
        if aborted is None:
            return None
        return fetched._replace(aborted=aborted) if aborted else fetched

    async def find_aborted(self, listed: SegmentList, offset: Offset, fetched: Fetched) -> Fetched:
        """Like `with_aborted`, but read what is needed. Raises LogReadFailed, LogCorrupt."""
        if not fetched.buffers:
            return fetched
        aborted = await self.aborted_in(listed, offset, fetched.next_offset)
        return fetched._replace(aborted=aborted)

    async def aborted_in(
        self, listed: SegmentList, start: Offset, end: Offset
    ) -> Sequence[AbortedTransaction]:
        """Return the transactions aborted in [start, end), in the order of their markers. The whole
        range must be decided; `listed` is the current list. Raises LogReadFailed, LogCorrupt."""
        try:
            return await self._aborted.find(listed, start, end)
        except MetadataError as error:
            raise _no_page(error) from error

    async def find_timestamp(
        self,
        listed: SegmentList,
        timestamp_ms: int,
        log_start: Offset,
        limit: Offset,
        opened: OpenedRecords,
    ) -> tuple[Offset, int] | None:
        """Return (offset, timestamp) of the first record in [log_start, limit) that is not older.

        Raises LogReadFailed, LogCorrupt.
        """
        if log_start >= limit:
            return None

        def wanted(ref: PageRef) -> bool:
            return ref.max_timestamp_ms >= timestamp_ms and ref.end_offset > log_start

        try:
            async with aclosing(self._pages.segments(listed, wanted)) as walk:
                async for segment in walk:
                    is_before = segment.end_offset is not None and segment.end_offset <= log_start
                    if is_before or self._newest_ms(segment) < timestamp_ms:
                        continue
                    view = await self._view(segment.ledger_id, segment.base_offset)
                    found = await self._scan(view, timestamp_ms, log_start, limit, opened)
                    if found is not None:
                        return found
        except MetadataError as error:
            raise _no_page(error) from error
        return None

    def max_timestamp_ms(self, listed: SegmentList) -> int:
        """Return the largest timestamp in sealed segments and the active one; -1: none."""
        sealed_ms = listed.max_timestamp_ms
        return sealed_ms if self._active is None else max(sealed_ms, self._active.max_timestamp_ms)

    def _newest_ms(self, segment: Segment) -> float:
        """Return the largest timestamp in a segment; infinite if it is not known."""
        if segment.facts is not None:
            return segment.facts.max_timestamp_ms
        if self._active is not None and segment.ledger_id == self._active.ledger_id:
            return self._active.max_timestamp_ms
        return float("inf")

    async def _view(self, ledger_id: LedgerId, base_offset: Offset | None) -> LedgerView:
        view = self._own.get(ledger_id)
        if view is not None:
            return view
        view = self._views.pop(ledger_id, None)
        if view is None:
            try:
                reader = await self._services.ledgers.open(ledger_id)
            except LedgerError as error:
                raise LogReadFailed(f"ledger {ledger_id}: {error!r}") from error
            view = LedgerView.of_closed(
                reader, base_offset, self._services.limits, self._services.ahead
            )
        self._views[ledger_id] = view
        while len(self._views) > self._services.limits.readers_max:
            self._views.pop(next(iter(self._views))).close()
        return view

    async def _read_entry(self, ledger_id: LedgerId, entry_id: EntryId) -> Buffer:
        view = await self._view(ledger_id, None)
        (entry,) = await view.read(entry_id, entry_id)
        return entry.payload

    async def _read_ledger(
        self, view: LedgerView, offset: Offset, limit: Offset, size_max: int, *, at_least_one: bool
    ) -> Fetched | None:
        """Return batches from the first one that ends after `offset`; None: there is none."""
        last = view.reader.last_entry
        if last < 0:
            return None
        entry_id, span = await view.find(offset)
        began = entry_id
        count = span - 1 + view.run_length(size_max)
        buffers: list[Buffer] = []
        size = 0
        reached = offset
        while entry_id <= last and not buffers:
            until = EntryId(min(last, entry_id + count - 1))
            entries = await view.read(entry_id, until)
            for at, entry in enumerate(entries):
                if is_internal(entry.payload):
                    continue
                taken = take_batches(
                    entry.payload,
                    reached,
                    limit,
                    size_max - size,
                    READ_BATCHES_MAX - len(buffers),
                    at_least_one=at_least_one and not buffers,
                )
                buffers += taken.batches
                size += taken.size
                reached = taken.next_offset
                if taken.stopped_at is not None:
                    view.learn(entry)
                    view.learn_inside(taken.stopped_at, entry)
                    if taken.is_full:
                        view.stopped(began, entry.entry_id, count, entries[at:])
                    return Fetched(buffers, reached, size)
            entry_id = EntryId(until + 1)
        if not buffers:
            return None
        view.learn_next(reached, entry_id)
        view.stopped(began, entry_id, count)
        return Fetched(buffers, reached, size)

    async def _scan(
        self,
        view: LedgerView,
        timestamp_ms: int,
        log_start: Offset,
        limit: Offset,
        opened: OpenedRecords,
    ) -> tuple[Offset, int] | None:
        """Scan batches from the last position that is certainly before the timestamp."""
        entry_id = await view.before_timestamp(timestamp_ms)
        count = view.run_length(_SCAN_BYTES)
        while entry_id <= view.reader.last_entry:
            until = EntryId(min(view.reader.last_entry, entry_id + count - 1))
            for entry in await view.read(entry_id, until):
                for batch, header in _batches(entry):
                    if opened.is_turn_over():
                        await self._services.turns.next()
                    if header.next_offset > limit:
                        return None
                    if header.max_timestamp < timestamp_ms or header.next_offset <= log_start:
                        continue
                    found = await self._search_batch(batch, header, timestamp_ms, log_start, opened)
                    if found is not None:
                        return found
            entry_id = EntryId(until + 1)
        return None

    async def _search_batch(
        self,
        batch: memoryview,
        header: BatchHeader,
        timestamp_ms: int,
        log_start: Offset,
        opened: OpenedRecords,
    ) -> tuple[Offset, int] | None:
        """Return the first record that is not older.

        If the records cannot be decoded, or not within the limits, return the begin of the batch,
        whose header says that it has such a record: a producer must not make the partition
        unsearchable, and a consumer that reads from there misses nothing.
        """
        whole = max(header.base_offset, log_start), header.max_timestamp
        if header.has_log_append_time or not opened.take(header.record_count):
            return whole
        try:
            return await self._services.turns.run(first_not_older(batch, timestamp_ms, log_start))
        except RemoteProtocolError:
            return whole


def _no_page(error: MetadataError) -> LogReadFailed:
    """A trim may have deleted the page meanwhile: a retry uses the current list."""
    return LogReadFailed(f"cannot read a page of the segment list: {error!r}")


def _batches(entry: Entry) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Iterate over the batches of an entry; an internal entry has none."""
    if is_internal(entry.payload):
        return
    for at, header in batch_headers(entry.payload):
        yield entry.payload[at : at + header.size], header
