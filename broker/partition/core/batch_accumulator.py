"""Accumulates batches of a partition that share a ledger entry.

Each entry has a fixed cost for its bookies and this broker, so small batches are sent together,
like small packets in Nagle's algorithm (RFC 896). Batches of one turn of the event loop share an
entry, and while some entries of the partition are in flight, further batches accumulate for the
next one. The delay costs less than it gains: entries are confirmed in order, and what reaches a
bookie during a sync would wait for the next sync anyway.

Two entries may be in flight before batches have to wait: one that the bookies sync, and one that is
ready for their next sync. A batch that fills an entry by itself never waits.

Each batch keeps its own offsets, checks, duplicate detection and answer; only the entry is shared.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.partition.core.append_queue import Append, LogEntry
from broker.partition.core.log_limits import LogLimits
from client.wire.kafka.batches.records import Buffer


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
