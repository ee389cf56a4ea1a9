"""Accepted entries that are not confirmed yet, in one order across ledgers.

Entries leave the queue in the order in which they entered it. An entry waits here until the
ledger's writer has room for it, and is taken then.

While a partition changes ledgers the queue holds new entries back: nothing is sent to the next
ledger before everything in the previous one is confirmed. So whatever a recovery finds in the
newer ledger continues what it finds in the older one, and an acknowledgement in the newer one
implies that the older one's end is final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from broker.errors import BrokerError
from client.ids import NO_ENTRY, EntryId, Offset
from client.wire.kafka.batches.records import Buffer


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
        """Complete the append and call all callbacks. For the partition only."""
        assert not self.completed
        self.completed = True
        self.error = error
        call, self._call = self._call, None
        if call is not None:
            call(self)
        if self._more_calls:
            calls, self._more_calls = self._more_calls, ()
            for call in calls:
                call(self)


class LogEntry:
    """The content of one ledger entry: batches that share it, or a snapshot without appends."""

    __slots__ = ("appends", "buffers", "end_offset", "entry_id", "sent_s", "size")

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
        self.sent_s = 0.0
        """When it was handed to the ledger."""


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
        """Remove and return all appends: this leader will not see them confirmed."""
        drained = list(self.appends())
        self._entries = None
        self.sent_count = self.waiting = self.size_bytes = 0
        return drained
