"""Reads a partition's ledgers: finds the batches at an offset or a timestamp that the tail cache
does not have.

It goes through the given segment list, opens ledgers when they are needed, and keeps a few of them
open. A segment whose ledger is gone, or not to be had now, is read from its object in the store,
entry by entry the same. It never returns anything at or above the given bound, the high watermark
at the time of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from broker.errors import LogReadFailed
from broker.partition.aborted_reader import AbortedReader
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.ledger_views import LedgerView, unread
from broker.partition.ledgers import Writer
from broker.partition.log_services import LogServices
from broker.partition.tail_cache import READ_BATCHES_MAX, Fetched
from client.errors import (
    LedgerError,
    LogCorrupt,
    MetadataError,
    ReadFailed,
    RemoteProtocolError,
)
from client.ids import EntryId, LedgerId, Offset
from client.log.aborted_transactions import AbortedTransaction, LedgerAborted
from client.log.entry_format import batch_headers, is_internal, take_batches
from client.log.segment_pages import PageRef
from client.log.segments import Segment, SegmentList
from client.segments.pages import SegmentPages
from client.wire.bookkeeper.entry import Entry
from client.wire.kafka.batches.record_scan import OpenedRecords, first_not_older, newest_from
from client.wire.kafka.batches.records import BatchHeader, Buffer

_SCAN_BYTES: Final = 1024 * 1024


class LogReader:
    """Reads the ledgers of one partition."""

    def __init__(self, services: LogServices, pages: SegmentPages, folder: str) -> None:
        """`folder`: where the object store has the partition's segments."""
        self._services = services
        self._pages = pages
        self._folder = folder
        self._listed = SegmentList()
        """The list that was used last."""
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

    def on_recovered(self, indexes: Mapping[LedgerId, LedgerAborted]) -> None:
        """This leader has no ledger: the aborted transactions of these are listed nowhere else."""
        self._aborted.on_recovered(indexes)

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
        self._listed = listed
        place = offset
        while True:
            try:
                segment = await self._pages.find(listed, place)
            except MetadataError as error:
                raise _no_page(error) from error
            view = await self._view(segment)
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
        self._listed = listed
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
                    view = await self._view(segment)
                    found = await self._scan(view, timestamp_ms, log_start, limit, opened)
                    if found is not None:
                        return found
        except MetadataError as error:
            raise _no_page(error) from error
        return None

    async def find_newest(
        self,
        listed: SegmentList,
        active_ms: int,
        log_start: Offset,
        limit: Offset,
        opened: OpenedRecords,
    ) -> tuple[Offset, int] | None:
        """Return (offset, timestamp) of the first record in [log_start, limit) that none of them is
        newer than.

        `active_ms`: the largest timestamp below `limit` in the segment that is being written. What
        the list says of a segment counts its trimmed records, too. So if nobody is as new as that,
        what is left of the segment that holds `log_start` is read. Raises as `find_timestamp`.
        """
        newest_ms = max(listed.max_timestamp_ms, active_ms)
        if newest_ms < 0 or log_start >= limit:
            return None
        found = await self.find_timestamp(listed, newest_ms, log_start, limit, opened)
        if found is not None:
            return found
        left_ms = await self._newest_left(listed, active_ms, log_start, limit, opened)
        if left_ms < 0:
            return None
        return await self.find_timestamp(listed, left_ms, log_start, limit, opened)

    async def _newest_left(
        self,
        listed: SegmentList,
        active_ms: int,
        log_start: Offset,
        limit: Offset,
        opened: OpenedRecords,
    ) -> int:
        """Return the largest timestamp in [log_start, limit), without what was trimmed."""
        newest_ms = -1
        trimmed: Segment | None = None

        def wanted(ref: PageRef) -> bool:
            nonlocal newest_ms
            if ref.base_offset >= log_start:
                newest_ms = max(newest_ms, ref.max_timestamp_ms)
                return False
            return ref.end_offset > log_start

        try:
            async with aclosing(self._pages.segments(listed, wanted)) as walk:
                async for segment in walk:
                    end, base = segment.end_offset, segment.base_offset
                    if base is None or (end is not None and end <= log_start):
                        continue  # without a base: the next one, of which nothing is confirmed
                    if base >= log_start:
                        facts = segment.facts
                        known_ms = active_ms if facts is None else facts.max_timestamp_ms
                        newest_ms = max(newest_ms, known_ms)
                    else:
                        trimmed = segment
        except MetadataError as error:
            raise _no_page(error) from error
        if trimmed is None:
            return newest_ms
        view = await self._view(trimmed)
        return max(newest_ms, await self._newest_in(view, log_start, limit, opened))

    async def _newest_in(
        self, view: LedgerView, start: Offset, limit: Offset, opened: OpenedRecords
    ) -> int:
        """Return the largest timestamp of a ledger's records in [start, limit)."""
        newest_ms = -1
        last = view.reader.last_entry
        if last < 0:
            return newest_ms
        entry_id, _ = await view.find(start)
        count = view.run_length(_SCAN_BYTES)
        while entry_id <= last:
            until = EntryId(min(last, entry_id + count - 1))
            entries = await view.read(entry_id, until)
            for entry in entries:
                for batch, header in _batches(entry):
                    if opened.is_turn_over():
                        await self._services.turns.next()
                    if header.next_offset > limit:
                        return newest_ms
                    if header.next_offset <= start or header.max_timestamp <= newest_ms:
                        continue
                    newest_ms = max(newest_ms, await self._newest_of(batch, header, start, opened))
            entry_id = EntryId(entries[-1].entry_id + 1)
        return newest_ms

    async def _newest_of(
        self, batch: memoryview, header: BatchHeader, start: Offset, opened: OpenedRecords
    ) -> int:
        """Return the largest timestamp in a batch; records below `start` count only where the
        batch cannot be looked into."""
        is_whole = header.base_offset >= start or header.has_log_append_time
        if is_whole or not opened.take(header.record_count):
            return header.max_timestamp
        try:
            return await self._services.turns.run(newest_from(batch, start))
        except RemoteProtocolError:
            return header.max_timestamp

    def _newest_ms(self, segment: Segment) -> float:
        """Return the largest timestamp in a segment; infinite if it is not known."""
        if segment.facts is not None:
            return segment.facts.max_timestamp_ms
        if self._active is not None and segment.ledger_id == self._active.ledger_id:
            return self._active.max_timestamp_ms
        return float("inf")

    async def _view(self, segment: Segment) -> LedgerView:
        """Return the view of a segment. Raises LogReadFailed, LogCorrupt."""
        ledger_id = segment.ledger_id
        view = self._own.get(ledger_id)
        if view is not None:
            return view
        view = self._views.pop(ledger_id, None)
        if view is not None and view.is_failing:
            view.close()
            view = None
        if view is None:
            try:
                view = await self._opened(segment)
            except LedgerError as error:
                raise unread(ledger_id, error) from error
        self._views[ledger_id] = view
        while len(self._views) > self._services.limits.readers_max:
            self._views.pop(next(iter(self._views))).close()
        return view

    async def _opened(self, segment: Segment) -> LedgerView:
        """Open the ledger, or in its place the object. Raises LedgerError, LogCorrupt."""
        services, base = self._services, segment.base_offset
        if not segment.is_ledger_gone:
            try:
                reader = await services.ledgers.open(segment.ledger_id)
                return LedgerView.of_closed(reader, base, services.limits, services.ahead)
            except LedgerError:
                if segment.stored is None or services.archive is None:
                    raise
        if services.archive is None:
            raise ReadFailed(
                "its copy is in an object store, and this broker has none: set offload.store_url"
            )
        archived = await services.archive.open(self._folder, segment)
        view = LedgerView.of_closed(archived, base, services.limits, services.ahead)
        for block in archived.footer.blocks:
            view.learn_next(block.first_offset, block.first_entry)
        return view

    async def _read_entry(self, ledger_id: LedgerId, entry_id: EntryId) -> Buffer:
        """Read an entry of any ledger of the list. Raises LogReadFailed, LogCorrupt."""
        view = self._own.get(ledger_id) or self._views.get(ledger_id)
        if view is None or view.is_failing:
            view = await self._view(await self._segment(ledger_id))
        (entry,) = await view.read(entry_id, entry_id)
        return entry.payload

    async def _segment(self, ledger_id: LedgerId) -> Segment:
        """Find a ledger in the list. One that is not in it, as it was replaced or is not sealed, is
        a ledger and nothing else."""
        walk = self._pages.segments(
            self._listed, lambda ref: ref.may_hold(ledger_id), newest_first=True
        )
        try:
            async with aclosing(walk):
                async for segment in walk:
                    if segment.ledger_id == ledger_id:
                        return segment
        except MetadataError as error:
            raise _no_page(error) from error
        return Segment(ledger_id, None, self._listed.leader_epoch, 0)

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
            entry_id = EntryId(entries[-1].entry_id + 1)
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
            entries = await view.read(entry_id, until)
            for entry in entries:
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
            entry_id = EntryId(entries[-1].entry_id + 1)
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
