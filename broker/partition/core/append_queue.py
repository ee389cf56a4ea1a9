"""Accepted batches that are not confirmed yet: gathered into entries, in one order across ledgers.

Each entry has a fixed cost for its bookies and this broker, so small batches are sent together,
like small packets in Nagle's algorithm (RFC 896). Batches of one turn of the event loop share an
entry, and while some entries of the partition are in flight, further batches accumulate for the
next one. The delay costs less than it gains: entries are confirmed in order, and what reaches a
bookie during a sync would wait for the next sync anyway. Two entries may be in flight before
batches have to wait: one that the bookies sync, and one that is ready for their next sync. A batch
that fills an entry by itself never waits. Each batch keeps its own offsets, checks, duplicate
detection and answer; only the entry is shared.

Entries leave the queue in the order in which they entered it. An entry waits here until the
ledger's writer has room for it, and is taken then.

While a partition changes ledgers the queue holds new entries back: nothing is sent to the next
ledger before everything in the previous one is confirmed. So whatever a recovery finds in the
newer ledger continues what it finds in the older one, and an acknowledgement in the newer one
implies that the older one's end is final.

A batch of a transaction that its coordinator has to verify (`held_batches.py`) is an
append like any other for the caller, and is completed once. Until it is accepted it has no offsets.
Then it follows the append that was made for it, which may be an earlier one if it is a duplicate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from broker.errors import BrokerError
from broker.partition.core.batch_checks import CheckedBatch
from broker.partition.core.held_batches import (
    Guard,
    HeldBatches,
    ProducerTransaction,
    Released,
)
from broker.partition.core.log_limits import LogLimits
from client.ids import NO_ENTRY, EntryId, Offset
from client.wire.kafka.batches.records import Buffer

UNKNOWN_OFFSET = Offset(-1)


class Append:
    """One accepted batch and its outcome.

    `completed` becomes true once. If `error` is None then, the batch is on its ack quorum and will
    always be read at `base_offset`; otherwise the error's `outcome` says what is known.
    """

    __slots__ = (
        "_call",
        "_more_calls",
        "base_offset",
        "buffers",
        "completed",
        "end_offset",
        "error",
        "log_append_time_ms",
        "size",
    )

    def __init__(
        self,
        base_offset: Offset,
        end_offset: Offset,
        buffers: Sequence[Buffer],
        size: int,
        log_append_time_ms: int = -1,
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.buffers = buffers
        """The batch as it is stored; empty for a duplicate."""
        self.size = size
        self.log_append_time_ms = log_append_time_ms
        """Timestamp set by the broker, or -1."""
        self.completed = False
        self.error: BrokerError | None = None
        self._call: Callable[[Append], None] | None = None
        self._more_calls: tuple[Callable[[Append], None], ...] = ()
        """Of whoever sent the batch again meanwhile."""

    def on_done(self, call: Callable[[Append], None]) -> None:
        """Call `call(self)` on completion; at once if it is completed already."""
        if self.completed:
            call(self)
        elif self._call is None:
            self._call = call
        else:
            self._more_calls = (*self._more_calls, call)

    def complete(self, error: BrokerError | None = None) -> None:
        """Complete the append and call all callbacks, then raise what the last one raised that did.
        For the partition only."""
        assert not self.completed
        self.completed = True
        self.error = error
        call, self._call = self._call, None
        try:
            if call is not None:
                call(self)
        finally:
            if self._more_calls:
                self._tell(self._more_calls)

    def _tell(self, calls: tuple[Callable[[Append], None], ...]) -> None:
        """Call everybody, though one of them raises."""
        self._more_calls = ()
        try:
            calls[0](self)
        finally:
            if len(calls) > 1:
                self._tell(calls[1:])


class LogEntry:
    """The content of one ledger entry: batches that share it, or an internal one without appends,
    of which somebody may wait to hear that it is confirmed."""

    __slots__ = (
        "appends", "awaited", "buffers", "end_offset", "entry_id", "newest_ms", "sent_s", "size",
    )  # fmt: skip

    def __init__(
        self, appends: Sequence[Append], buffers: Sequence[Buffer], end_offset: Offset, size: int
    ) -> None:
        self.entry_id: EntryId = NO_ENTRY
        """The id that it must get in its ledger."""
        self.appends = appends
        """In the order of their offsets."""
        self.buffers = buffers
        self.end_offset = end_offset
        """End of the log after this entry."""
        self.size = size
        self.newest_ms = -1
        """Largest timestamp in its ledger up to its end; of an entry with batches."""
        self.sent_s = 0.0
        """When it was handed to the ledger."""
        self.awaited: Append | None = None
        """Completed with an internal entry, once it is confirmed."""


class AppendQueue:
    """A first-in, first-out queue that can hold entries back for the next ledger."""

    __slots__ = ("_entries", "_holding", "sent_count", "size_bytes", "waiting")

    def __init__(self) -> None:
        self._entries: deque[LogEntry] | None = None
        """All of them: taken ones, waiting ones, those held back for the next ledger. None if there
        are none: an empty deque takes 760 bytes, and most partitions are idle."""
        self.sent_count = 0
        """Entries that were taken and are not confirmed yet."""
        self.waiting = 0
        """Entries for the same ledger that are not taken yet."""
        self._holding = False
        self.size_bytes = 0
        """Bytes accepted and not confirmed."""

    def __len__(self) -> int:
        return len(self._entries or ())

    @property
    def is_holding(self) -> bool:
        """Whether new entries wait for the next ledger."""
        return self._holding

    @property
    def entries_under_way(self) -> int:
        """Entries for this ledger that are not confirmed yet."""
        return self.sent_count + self.waiting

    @property
    def next_size(self) -> int:
        """Size of the next entry to send; `waiting` must not be 0."""
        assert self._entries is not None
        return self._entries[self.sent_count].size

    @property
    def is_drained(self) -> bool:
        """Whether everything for this ledger is confirmed."""
        return not self.sent_count and not self.waiting

    def push(self, entry: LogEntry) -> None:
        """Enqueue an entry."""
        self.size_bytes += entry.size
        if self._entries is None:
            self._entries = deque((entry,))
        else:
            self._entries.append(entry)
        if not self._holding:
            self.waiting += 1

    def take(self) -> LogEntry:
        """Return the next entry to send; `waiting` must not be 0."""
        assert self._entries is not None and self.waiting, "what is held is not for this ledger"
        entry = self._entries[self.sent_count]
        self.waiting -= 1
        self.sent_count += 1
        return entry

    def pop(self) -> LogEntry:
        """The ledger confirmed its oldest entry: return that."""
        entries = self._entries
        assert entries is not None and self.sent_count, "an entry was confirmed that was not sent"
        self.sent_count -= 1
        entry = entries.popleft()
        if not entries:
            self._entries = None
        self.size_bytes -= entry.size
        return entry

    def hold(self) -> None:
        """Hold new entries back from now on."""
        assert not self._holding
        self._holding = True

    def release(self) -> None:
        """Switch to the next ledger: entries held back may be taken for it, in order."""
        assert self._holding
        assert self.is_drained, "the previous ledger has unconfirmed entries"
        self._holding = False
        self.waiting = len(self)

    def appends(self) -> Iterator[Append]:
        """Iterate over all queued appends, oldest first."""
        for entry in self._entries or ():
            yield from entry.appends

    def drain(self) -> list[Append]:
        """Remove and return all appends, and who waits for internal entries: this leader will not
        see them confirmed."""
        drained = list(self.appends())
        drained += (one.awaited for one in self._entries or () if one.awaited is not None)
        self._entries = None
        self.sent_count = self.waiting = self.size_bytes = 0
        return drained


class BatchAccumulator:
    """Accepted batches that are in no entry yet."""

    __slots__ = (
        "_appends",
        "_batches_max",
        "_bytes_max",
        "_copy_below_bytes",
        "_entries_under_way_max",
        "is_full",
        "size_bytes",
    )

    def __init__(self, limits: LogLimits) -> None:
        self._appends: list[Append] = []
        self._bytes_max = min(limits.shared_entry_bytes_max, limits.entry_bytes_max)
        self._batches_max = limits.shared_entry_batches_max
        self._copy_below_bytes = limits.copy_below_bytes
        self._entries_under_way_max = limits.entries_before_sharing
        self.size_bytes = 0
        self.is_full = False
        """Whether the entry should be sent now, whatever is in flight."""

    def __len__(self) -> int:
        return len(self._appends)

    def __iter__(self) -> Iterator[Append]:
        return iter(self._appends)

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes fits into the entry."""
        return self.size_bytes + size <= self._bytes_max or not self._appends

    def add(self, append: Append) -> None:
        """Add a batch, which must fit, to the entry."""
        appends = self._appends
        appends.append(append)
        self.size_bytes += append.size
        if self.size_bytes >= self._bytes_max or len(appends) >= self._batches_max:
            self.is_full = True

    def may_leave(self, entries_under_way: int) -> bool:
        """Whether to send an entry at the end of this turn of the loop."""
        return bool(self._appends) and entries_under_way < self._entries_under_way_max

    def take(self) -> LogEntry:
        """Return the entry, and begin an empty one."""
        appends, self._appends = self._appends, []
        size, self.size_bytes = self.size_bytes, 0
        self.is_full = False
        end = appends[-1].end_offset
        if len(appends) == 1:
            return LogEntry(appends, appends[0].buffers, end, size)
        buffers: list[Buffer] = []
        for append in appends:
            buffers += append.buffers
        if size < self._copy_below_bytes * len(buffers):
            # A copy costs less than handling every piece again for each bookie.
            buffers = [b"".join(buffers)]
        return LogEntry(appends, buffers, end, size)

    def drain(self) -> list[Append]:
        """Remove and return all batches: they will not be sent."""
        appends, self._appends = self._appends, []
        self.size_bytes = 0
        self.is_full = False
        return appends


class HeldAppend(Append):
    """One held batch and its outcome. `base_offset` is -1 until it is accepted; the difference to
    `end_offset` is always the number of its records."""

    __slots__ = ("_accepted_calls", "batch", "checked", "from_client", "guard", "transaction")

    def __init__(
        self,
        batch: Buffer,
        checked: CheckedBatch,
        transaction: ProducerTransaction,
        *,
        from_client: bool,
    ) -> None:
        header = checked.header
        end = Offset(UNKNOWN_OFFSET + header.record_count)
        super().__init__(UNKNOWN_OFFSET, end, (), header.size)
        self.batch = batch
        self.checked = checked
        self.transaction = transaction
        self.from_client = from_client
        self.guard: Guard | None = None
        """The verification that this batch starts; None: one is in progress already."""
        self._accepted_calls: list[Callable[[HeldAppend], None]] = []

    def on_accepted(self, call: Callable[[HeldAppend], None]) -> None:
        """Call `call(self)` when it has its offsets, before any later batch has: at once if it has
        them already, never if it is refused."""
        if self.base_offset != UNKNOWN_OFFSET:
            call(self)
        else:
            self._accepted_calls.append(call)

    def follow(self, append: Append) -> None:
        """The batch was accepted as `append`, or is a duplicate of it."""
        self.base_offset, self.end_offset = append.base_offset, append.end_offset
        self.log_append_time_ms = append.log_append_time_ms
        self.batch = b""
        calls, self._accepted_calls = self._accepted_calls, []
        for call in calls:
            call(self)
        append.on_done(self._on_done)

    def _on_done(self, append: Append) -> None:
        self.complete(append.error)


def settle(
    released: Released[HeldAppend],
    held: HeldBatches[HeldAppend],
    accept: Callable[[HeldAppend], Append],
) -> None:
    """Accept or refuse released batches, in order.

    `accept` appends a batch, and raises BrokerError. After a batch was refused with an error that
    its producer retries, none after it is accepted before it (REFUSED-ORDER).
    """
    error: BrokerError | None = released.error
    for item in released.batches:
        failure = error
        if failure is None:
            try:
                item.follow(accept(item))
            except BrokerError as refusal:
                failure = refusal
                if refusal.retriable:
                    held.on_not_accepted(item.checked.header)
                    error = refusal
        if failure is not None:
            item.complete(failure)
