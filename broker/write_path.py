"""The append path of a led partition, from a checked batch to its confirmation.

This file is the only home of what happens between "this batch is fine" and "it is durable". All
of it is synchronous: an append gets its offsets, is recorded for duplicate detection and counted,
without a suspension point and without a copy of its bytes (a fresh prefix, and the producer's
buffer behind it). At the end of the loop's turn it goes to the ledger writer, in an entry that it
may share with others (`core/gathering.py`). Confirmation is a plain callback.

A change of ledgers has two halves. `hold` begins the next segment: appends go on being
accepted, but wait. `switch`, once the previous ledger has confirmed everything, sends them to
the next one, whose first entry is a snapshot of the moment of `hold`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain

from broker.core.active_segment import ActiveSegment
from broker.core.append_queue import Append, AppendQueue, LogEntry
from broker.core.gathering import Gathering
from broker.core.offsets import LogOffsets
from broker.core.producer_state import AcceptedBatch
from broker.core.snapshot import seal_snapshot
from broker.errors import LeadershipLost
from broker.ledgers import Writer
from broker.log_services import LogServices
from broker.opening import Opened
from client.errors import LedgerClosed, LedgerError
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
        on_confirmed: Callable[[Sequence[Append]], None],
        on_failed: Callable[[LedgerError], None],
    ) -> None:
        """`on_confirmed` gets the appends of each entry, in order; `on_failed` is called at most
        once."""
        self._services = services
        self._metrics = services.metrics
        self._limits = services.limits
        self._on_confirmed = on_confirmed
        self._on_failed = on_failed
        self._added: Callable[[EntryId, LedgerError | None], None] = self._on_added
        self._loop = asyncio.get_running_loop()
        self._queue = AppendQueue()
        self._gathering = Gathering(services.limits)
        self._send_planned = False
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
        return self._queue.size_bytes + self._gathering.size_bytes

    def append(
        self, view: memoryview, header: BatchHeader, now_ms: int, *, stamped: bool
    ) -> Append:
        """Accept a checked batch. `stamped`: the broker sets its timestamp.

        Raises LedgerError if the ledger takes no more entries; this batch was not applied then.
        """
        if self.writer.is_ended:
            raise LedgerClosed(f"ledger {self.writer.ledger_id} takes no more entries")
        if not self._gathering.has_room(header.size):
            self._send_gathered()
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
        self._gathering.add(append)
        if header.producer_id >= 0:
            self.producers.accept(header, base, now_ms, set_ms)
        self.offsets.on_accepted(end)
        self.active.on_batch(base, end, size, max_timestamp_ms)
        self._plan_send()
        return append

    def repeat(self, known: AcceptedBatch) -> Append:
        """Answer a duplicate: with its original while that is on its way, else as completed."""
        original = self._find_under_way(known.base_offset)
        if original is not None:
            return original
        done = Append(
            known.base_offset, known.next_offset, (), 0, log_append_time_ms=known.timestamp_ms
        )
        done.complete()
        return done

    def write_snapshot(self) -> None:
        """Enqueue a snapshot of everything accepted so far. Raises LedgerError."""
        self._send_gathered()
        active = self.active
        end = self.offsets.log_end
        data = seal_snapshot(
            end, self.leader_epoch, active.max_timestamp_ms, active.points, self.producers
        )
        self._send(LogEntry((), (data,), end, len(data)))
        active.on_snapshot(len(data))

    def finish_segment(self) -> None:
        """End the segment with a snapshot, so that whoever opens it reads one entry.

        Raises LedgerError.
        """
        if self.active.has_news:
            self.write_snapshot()

    def hold(self, next_ledger_id: LedgerId) -> ActiveSegment:
        """Begin the next segment; return the previous one, complete but not yet confirmed.

        Raises LedgerError.
        """
        self._send_gathered()
        self._queue.hold()
        previous, self.active = self.active, self._begin_segment(next_ledger_id)
        self.write_snapshot()
        return previous

    async def drained(self) -> None:
        """Wait until the ledger has confirmed everything that was accepted before a `hold`, or
        else before now. Raises LeadershipLost, LedgerError."""
        if not self._queue.is_holding:
            self._send_gathered()
        if self._ended:
            raise LeadershipLost("leadership ended")
        if not self._queue.is_drained:
            self._drained = self._loop.create_future()
            await self._drained

    def switch(self, writer: Writer) -> None:
        """Send what was held to the next ledger. Raises LedgerError."""
        assert writer.ledger_id == self.active.ledger_id
        self.writer = writer
        self.has_own_snapshot = False
        now_s = self._metrics.now_s()
        for entry in self._queue.release():
            entry.sent_s = now_s
            writer.add(entry.buffers, self._added)
        self._plan_send()

    def end(self, error: LeadershipLost) -> None:
        """Fail everything that is not confirmed: whether it survives is not known."""
        self._ended = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(error)
        self.writer.abandon()
        for append in [*self._queue.drain(), *self._gathering.drain()]:
            append.complete(error)

    def _find_under_way(self, base_offset: Offset) -> Append | None:
        for append in chain(self._queue.appends(), self._gathering):
            if append.base_offset == base_offset:
                return append
        return None

    def _plan_send(self) -> None:
        """Send what gathered: now if that is enough, or else when this turn of the loop is over."""
        if self._gathering.is_full:
            self._try_send()
        elif not self._send_planned and self._gathering.may_leave(self._queue.entries_under_way):
            self._send_planned = True
            self._loop.call_soon(self._on_turn_over)

    def _on_turn_over(self) -> None:
        self._send_planned = False
        if not self._ended and self._gathering.may_leave(self._queue.entries_under_way):
            self._try_send()

    def _try_send(self) -> None:
        """The appends are accepted: a failure here is the ledger's, not that of one of them."""
        try:
            self._send_gathered()
        except LedgerError as error:
            self._on_failed(error)

    def _send_gathered(self) -> None:
        """Raises LedgerError."""
        if self._gathering:
            self._send(self._gathering.take())
            self.active.on_entry()
            if self.active.snapshot_due:
                self.write_snapshot()

    def _begin_segment(self, ledger_id: LedgerId) -> ActiveSegment:
        now_ms = self._services.clock.now_ms()
        return ActiveSegment(ledger_id, self.offsets.log_end, now_ms, self._limits)

    def _send(self, entry: LogEntry) -> None:
        """Put an entry into the queue and, unless it is held, on its way. Raises LedgerError."""
        if self._queue.push(entry):
            entry_id = self.writer.add(entry.buffers, self._added)
            assert entry_id == self.active.entry_count, (entry_id, self.active.entry_count)
            entry.sent_s = self._metrics.now_s()

    def _on_added(self, entry_id: EntryId, error: LedgerError | None) -> None:
        """The ledger settled its oldest entry."""
        if self._ended:
            return
        if error is not None:
            self._on_failed(error)
            return
        entry = self._queue.pop()
        self._metrics.append_seconds.observe(self._metrics.now_s() - entry.sent_s)
        self.offsets.on_confirmed(entry.end_offset)
        if entry.appends:
            self._on_confirmed(entry.appends)
        else:
            self.has_own_snapshot = True
        if self._gathering and not self._ended:
            self._plan_send()
        drained = self._drained
        if drained is not None and self._queue.is_drained and not drained.done():
            drained.set_result(None)
