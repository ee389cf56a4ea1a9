"""The append path of a led partition, from a checked batch to its confirmation.

This file is the only home of what happens between "this batch is fine" and "it is durable". All
of it is synchronous: an append gets its offsets, is recorded for duplicate detection, counted,
and enqueued at the ledger writer, without a suspension point and without a copy of its bytes (a
fresh prefix, and the producer's buffer behind it). Confirmation is a plain callback.

A change of ledgers has two halves. `hold` begins the next segment: appends go on being
accepted, but wait. `switch`, once the previous ledger has confirmed everything, sends them to
the next one, whose first entry is a snapshot of the moment of `hold`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.core.active_segment import ActiveSegment
from broker.core.append_queue import Append, AppendQueue
from broker.core.offsets import LogOffsets
from broker.core.producer_state import AcceptedBatch
from broker.core.snapshot import seal_snapshot
from broker.errors import LeadershipLost
from broker.ledgers import Writer
from broker.log_services import LogServices
from broker.opening import Opened
from client.errors import LedgerError
from client.ids import EntryId, LedgerId, Offset
from client.wire.kafka.records import (
    HEADER_BYTES,
    STAMP_BYTES,
    BatchHeader,
    stamp,
    stamp_log_append_time,
)


class WritePath:
    """Accepts, sends and confirms the appends of one partition under one leader."""

    def __init__(
        self,
        services: LogServices,
        opened: Opened,
        *,
        on_confirmed: Callable[[Append], None],
        on_failed: Callable[[LedgerError], None],
    ) -> None:
        """`on_confirmed` gets every append in order; `on_failed` is called at most once."""
        self._services = services
        self._metrics = services.metrics
        self._limits = services.limits
        self._on_confirmed = on_confirmed
        self._on_failed = on_failed
        self._added: Callable[[EntryId, LedgerError | None], None] = self._on_added
        self._queue = AppendQueue()
        self._drained: asyncio.Future[None] | None = None
        self._ended = False
        self.leader_epoch = opened.segments.leader_epoch
        self.offsets = LogOffsets(opened.segments.log_start_offset, opened.log_end_offset)
        self.producers = opened.producers
        self.writer = opened.writer
        self.active = self._begin_segment(opened.writer.ledger_id)
        self.has_own_snapshot = False
        """Whether a snapshot is confirmed in the active ledger, so that a takeover needs no
        older one."""

    @property
    def in_flight_bytes(self) -> int:
        """Bytes accepted and not confirmed."""
        return self._queue.size_bytes

    def append(
        self, view: memoryview, header: BatchHeader, now_ms: int, *, stamped: bool
    ) -> Append:
        """Accept a checked batch. `stamped`: the broker sets its timestamp.

        Raises LedgerError if the ledger takes no more entries; nothing was applied then.
        """
        base = self.offsets.log_end
        if stamped:
            set_ms = max_timestamp_ms = now_ms
            prefix = stamp_log_append_time(view, header, base, self.leader_epoch, now_ms)
            rest = view[HEADER_BYTES:]
        else:
            set_ms, max_timestamp_ms = -1, header.max_timestamp
            prefix = stamp(base, header.batch_length, self.leader_epoch)
            rest = view[STAMP_BYTES:]
        size = header.size
        end = Offset(base + header.record_count)
        small = size < self._limits.copy_below_bytes
        append = Append(
            base,
            end,
            (b"".join((prefix, rest)),) if small else (prefix, rest),
            size,
            log_append_time_ms=set_ms,
        )
        self._send(append)
        if header.producer_id >= 0:
            self.producers.accept(header, base, now_ms, set_ms)
        self.offsets.on_accepted(end)
        self.active.on_batch(base, end, size, max_timestamp_ms)
        if self.active.snapshot_due:
            self._write_due_snapshot()
        return append

    def repeat(self, known: AcceptedBatch) -> Append:
        """Answer a duplicate: with its original while that is on its way, else as completed."""
        original = self._queue.find(known.base_offset)
        if original is not None:
            return original
        done = Append(
            known.base_offset, known.next_offset, (), 0, log_append_time_ms=known.timestamp_ms
        )
        done.complete()
        return done

    def write_snapshot(self) -> None:
        """Enqueue a snapshot of everything accepted so far. Raises LedgerError."""
        active = self.active
        end = self.offsets.log_end
        data = seal_snapshot(
            end, self.leader_epoch, active.max_timestamp_ms, active.points, self.producers
        )
        self._send(Append(end, end, (data,), len(data), is_batch=False))
        active.on_snapshot(len(data))

    def finish_segment(self) -> None:
        """End the segment with a snapshot, so that whoever opens it reads one entry.

        Raises LedgerError.
        """
        if self.active.has_news:
            self.write_snapshot()

    def hold(self, next_ledger_id: LedgerId) -> ActiveSegment:
        """Begin the next segment; return the previous one, complete but not yet confirmed."""
        self._queue.hold()
        previous, self.active = self.active, self._begin_segment(next_ledger_id)
        self.write_snapshot()
        return previous

    async def drained(self) -> None:
        """Wait until the ledger has confirmed everything it was sent. Raises LeadershipLost."""
        if self._ended:
            raise LeadershipLost("leadership ended")
        if not self._queue.is_drained:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def switch(self, writer: Writer) -> None:
        """Send what was held to the next ledger. Raises LedgerError."""
        assert writer.ledger_id == self.active.ledger_id
        self.writer = writer
        self.has_own_snapshot = False
        now_s = self._metrics.now_s()
        for append in self._queue.release():
            append.sent_s = now_s
            writer.add(append.buffers, self._added)

    def end(self, error: LeadershipLost) -> None:
        """Fail everything that is not confirmed: whether it survives is not known."""
        self._ended = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(error)
        self.writer.abandon()
        for append in self._queue.drain():
            append.complete(error)

    def _write_due_snapshot(self) -> None:
        """The append before it is on its way already: a failure here must not look like its own."""
        try:
            self.write_snapshot()
        except LedgerError as error:
            self._on_failed(error)

    def _begin_segment(self, ledger_id: LedgerId) -> ActiveSegment:
        now_ms = self._services.clock.now_ms()
        return ActiveSegment(ledger_id, self.offsets.log_end, now_ms, self._limits)

    def _send(self, append: Append) -> None:
        """Put an entry into the queue and, unless it is held, on its way."""
        if not self._queue.is_holding:
            entry_id = self.writer.add(append.buffers, self._added)
            assert entry_id == self.active.entry_count, (entry_id, self.active.entry_count)
            append.sent_s = self._metrics.now_s()
        self._queue.push(append)

    def _on_added(self, entry_id: EntryId, error: LedgerError | None) -> None:
        """The ledger settled its oldest entry."""
        if self._ended:
            return
        if error is not None:
            self._on_failed(error)
            return
        append = self._queue.pop()
        self._metrics.append_seconds.observe(self._metrics.now_s() - append.sent_s)
        self.offsets.on_confirmed(append.end_offset)
        if append.is_batch:
            self._on_confirmed(append)
        else:
            self.has_own_snapshot = True
        drained = self._drained
        if drained is not None and self._queue.is_drained and not drained.done():
            drained.set_result(None)
