"""The newest confirmed batches of the partitions led here, in memory.

Consumers that keep up read what producers have just written, so most fetches are served from here,
without a ledger read and without a copy: the cache holds the same buffers that were sent to the
bookies. Its limit is in bytes for the whole broker: all memory that a batch keeps alive (the whole
buffer that it is a view of), plus Python's overhead. The oldest batch is evicted first, whichever
partition it belongs to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from client.fast_tuple import new_tuple
from client.ids import Offset
from client.log.aborted_transactions import AbortedTransaction
from client.wire.kafka.batches.records import Buffer

READ_BATCHES_MAX: Final = 5_000
"""Most batches that one read returns, however small they are."""
_COMPACT_ABOVE: Final = 1024
BATCH_OVERHEAD_BYTES: Final = 500
"""Approximate overhead of Python to hold one batch, in addition to its bytes."""


class Fetched(NamedTuple):
    """Whole batches, ready to be sent."""

    buffers: list[Buffer]
    next_offset: Offset
    """Where to continue: after the last batch, or where the read began if there is none."""
    size: int
    aborted: Sequence[AbortedTransaction] = ()
    """For a read_committed reader: the aborted transactions in these batches, to be skipped."""


class _Cached(NamedTuple):
    next_offset: Offset
    buffers: Sequence[Buffer]
    size: int
    held_bytes: int
    """Memory that it keeps alive: a view keeps the whole buffer that it is a view of."""


class TailCache:
    """The limit that all partitions share."""

    def __init__(self, size_max: int, *, overhead_bytes: int = BATCH_OVERHEAD_BYTES) -> None:
        """`overhead_bytes` is counted for each batch."""
        self.size_max = size_max
        self.size = 0
        self._overhead_bytes = overhead_bytes
        self._arrivals: deque[PartitionTail] = deque()
        """One item per cached batch, oldest first: the partition whose oldest batch it is."""

    def tail(self) -> PartitionTail:
        """Return an empty cache for one partition under one leader."""
        return PartitionTail(self)

    def _on_added(self, tail: PartitionTail, size: int) -> None:
        self.size += size + self._overhead_bytes
        self._arrivals.append(tail)
        while self.size > self.size_max and self._arrivals:
            size = self._arrivals.popleft()._drop_oldest()
            if size:
                self.size -= size + self._overhead_bytes

    def _on_cleared(self, size: int, count: int) -> None:
        self.size -= size + count * self._overhead_bytes


class PartitionTail:
    """Consecutive batches of one partition, up to its high watermark."""

    __slots__ = ("_bases", "_batches", "_cache", "_head", "_size")

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self._bases: list[Offset] = []
        self._batches: list[_Cached | None] = []
        self._head = 0
        """Index of the oldest batch; those before it were evicted."""
        self._size = 0

    def add(
        self, base_offset: Offset, next_offset: Offset, buffers: Sequence[Buffer], size: int
    ) -> None:
        """Cache the batch that was confirmed last; it follows the previous one without a gap."""
        self._bases.append(base_offset)
        held_bytes = size
        for buffer in buffers:
            if type(buffer) is memoryview:
                whole: Any = buffer.obj
                held_bytes = max(held_bytes, len(whole))
        self._batches.append(new_tuple(_Cached, (next_offset, buffers, size, held_bytes)))
        self._size += held_bytes
        self._cache._on_added(self, held_bytes)

    def read(
        self, offset: Offset, limit: Offset, size_max: int, *, at_least_one: bool
    ) -> Fetched | None:
        """Return batches below `limit`, from the one that holds `offset`; None: not cached.

        At most `size_max` bytes, except that `at_least_one` batch is returned whatever its size.
        """
        at = bisect_right(self._bases, offset, self._head) - 1
        if at < self._head:
            return None
        buffers: list[Buffer] = []
        size = 0
        reached = offset
        while at < len(self._batches):
            batch = self._batches[at]
            assert batch is not None
            if batch.next_offset > limit or len(buffers) >= READ_BATCHES_MAX:
                break
            if size + batch.size > size_max and (buffers or not at_least_one):
                break
            if batch.next_offset > offset:
                buffers.extend(batch.buffers)
                size += batch.size
                reached = batch.next_offset
            at += 1
        return Fetched(buffers, reached, size)

    def size_from(self, offset: Offset, limit: Offset, size_max: int) -> int | None:
        """Return how many bytes `read` would have to give, `size_max` if there are more; None: not
        cached. Other than `read` it counts a batch that does not fit."""
        at = bisect_right(self._bases, offset, self._head) - 1
        if at < self._head:
            return None
        size = 0
        while at < len(self._batches) and size < size_max:
            batch = self._batches[at]
            assert batch is not None
            if batch.next_offset > limit:
                break
            if batch.next_offset > offset:
                size += batch.size
            at += 1
        return min(size, size_max)

    def clear(self) -> None:
        """Forget everything: the partition is no longer led here."""
        self._cache._on_cleared(self._size, len(self._batches) - self._head)
        self._size = 0
        self._bases.clear()
        self._batches.clear()
        self._head = 0

    def drop_below(self, offset: Offset) -> None:
        """Forget batches that end at or below an offset: they were compacted."""
        while self._head < len(self._batches):
            batch = self._batches[self._head]
            assert batch is not None
            if batch.next_offset > offset:
                return
            self._cache._on_cleared(self._drop_oldest(), 1)

    def _drop_oldest(self) -> int:
        """Forget the oldest batch, and return its memory; 0 after `clear`."""
        if self._head >= len(self._batches):
            return 0
        batch = self._batches[self._head]
        assert batch is not None
        self._batches[self._head] = None
        self._head += 1
        self._size -= batch.held_bytes
        if self._head > _COMPACT_ABOVE and self._head * 2 > len(self._batches):
            del self._bases[: self._head]
            del self._batches[: self._head]
            self._head = 0
        return batch.held_bytes
