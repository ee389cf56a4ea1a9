"""Which batches of a partition share a ledger entry.

An entry costs three bookies and this broker the same whatever it holds, so small batches travel
together, as small packets do (RFC 896): those of one turn of the event loop share an entry, and
while some entries of the partition are under way what comes meanwhile gathers for the next one.
That delays nothing by more than it gains: entries are confirmed in order, and a bookie would make
what comes during a sync wait for the next one anyhow.

Two entries may be under way before anything waits: one that the bookies sync, and the next one
that lies ready when they have. A batch that fills an entry by itself never waits.

Each batch keeps its own offsets, checks, duplicates and answer; only the envelope is shared.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.partition.core.append_queue import Append, LogEntry
from broker.partition.core.log_limits import LogLimits
from client.wire.kafka.batches.records import Buffer


class BatchAccumulator:
    """Accepted batches that no entry holds yet."""

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
        """Whether the entry should leave now, whatever is under way."""

    def __len__(self) -> int:
        return len(self._appends)

    def __iter__(self) -> Iterator[Append]:
        return iter(self._appends)

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes may join those that are here."""
        return self.size_bytes + size <= self._bytes_max or not self._appends

    def add(self, append: Append) -> None:
        """Let a batch, which has room, wait for its entry."""
        appends = self._appends
        appends.append(append)
        self.size_bytes += append.size
        if self.size_bytes >= self._bytes_max or len(appends) >= self._batches_max:
            self.is_full = True

    def may_leave(self, entries_under_way: int) -> bool:
        """Whether there is an entry to send at the end of this turn of the loop."""
        return bool(self._appends) and entries_under_way < self._entries_under_way_max

    def take(self) -> LogEntry:
        """Return the entry; the next one begins empty."""
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
            # A copy costs less than handling every piece once more for each bookie.
            buffers = [b"".join(buffers)]
        return LogEntry(appends, buffers, end, size)

    def drain(self) -> list[Append]:
        """Remove and return everything: it will not be sent."""
        appends, self._appends = self._appends, []
        self.size_bytes = 0
        self.is_full = False
        return appends
