"""Reads entries ahead for consumers that read a ledger sequentially.

A consumer behind the tail cache asks for the next records only after it has the previous ones, and
bookies would be idle meanwhile. So when a read begins where an earlier one stopped, the entries
after it are read at once, and kept for the next read. Each time the consumer continues, twice as
many are read as before, up to its share, but none while half of that is already there: a few large
reads cost brokers and bookies a fraction of what many small ones do.

This affects no decision: only confirmed entries of a ledger are kept, which never change, and every
read first checks leadership, offsets and the segment list as it would without read-ahead. A run
that failed is dropped; a read that needs its entries reads them itself, and gets its own error.

A run that was read to its end is dropped, unless other consumers follow: a read that stops where
another one did indicates that. From then on runs are kept for the others, so that several groups
that catch up read each byte from bookies only once. New runs evict runs that were read, never the
others.

The size is bounded for the whole broker and for each reader. A run that is not read within a while
is dropped: its consumer has stopped, or went elsewhere. So are all runs of a ledger that is removed
from the list, and of a partition that is no longer led here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from broker.partition.ledgers import Reader
from client.ids import EntryId
from client.node import background
from client.wire.bookkeeper.entry import Entry

_STOPS_MAX: Final = 64
"""Readers of one ledger that are recognized when they continue."""


class ReadAhead:
    """The limits and counters that all partitions share."""

    def __init__(
        self, bytes_max: int = 0, reader_bytes_max: int = 8 << 20, patience_s: float = 2.0
    ) -> None:
        """`bytes_max` 0: nothing is read ahead. `patience_s`: how long an unread run is kept."""
        self.bytes_max = bytes_max
        self.reader_bytes_max = reader_bytes_max
        self.patience_s = patience_s
        self.size = 0
        """Bytes of all runs; estimated for those that are still being read."""
        self.used_bytes = 0
        """Bytes of runs that served reads."""
        self.dropped_bytes = 0
        """Bytes of runs that were dropped without having been read."""
        self.kept: dict[_Run, LedgerAhead] = {}
        """Runs that were read and are kept for others, least recently used first."""

    def of(self, reader: Reader) -> LedgerAhead:
        """Return the read-ahead of one ledger, still empty."""
        return LedgerAhead(self, reader)

    def make_room(self, size: int) -> bool:
        """Drop runs that were read until `size` more bytes fit; return whether they do."""
        while self.size + size > self.bytes_max and self.kept:
            run, ledger = next(iter(self.kept.items()))
            ledger.drop(run)
        return self.size + size <= self.bytes_max


class _Run:
    """Consecutive entries of one ledger that are being read, or are kept."""

    __slots__ = ("first", "last", "size", "task", "timer", "waiting")

    def __init__(
        self, first: EntryId, last: EntryId, size: int, task: asyncio.Task[list[Entry]]
    ) -> None:
        self.first = first
        self.last = last
        self.size = size
        self.task = task
        self.timer: asyncio.TimerHandle | None = None
        self.waiting = 0
        """Number of reads that wait for it."""


class LedgerAhead:
    """Reads of one ledger, and its read-ahead."""

    def __init__(self, shared: ReadAhead, reader: Reader) -> None:
        self._shared = shared
        self._reader = reader
        self._stops: dict[EntryId, int] = {}
        """Entry at which a read stopped -> number of entries to read ahead next; oldest first."""
        self._runs: dict[EntryId, _Run] = {}
        """Runs by each of their entries."""
        self._followed_s = float("-inf")
        """When a read last stopped where another one had stopped."""
        self._is_closed = False

    async def read(self, first: EntryId, last: EntryId) -> list[Entry]:
        """Read an inclusive range; at least one entry, and not all if the reader gives no more
        now. Raises LedgerError."""
        entries: list[Entry] = []
        while (at := EntryId(first + len(entries))) <= last:
            run = self._runs.get(at)
            if run is None:
                until = self._before_next_run(at, last)
                entries += await self._reader.read(at, until)
                if first + len(entries) <= until:
                    return entries
                continue
            try:
                some = await self._take(run, last)
            except Exception:  # reading them again gives the caller its own error
                return [*entries, *await self._reader.read(at, last)]
            some = some[at - run.first : last - run.first + 1]
            if not some:  # the reader gave less than the run was to have
                return entries or [*await self._reader.read(at, last)]
            self._shared.used_bytes += _size_of(some)
            entries += some
        return entries

    def stopped(self, began: EntryId, at: EntryId, count: int, rest: Sequence[Entry] = ()) -> None:
        """A read from entry `began` stopped at entry `at` and would continue with `count` entries.

        `rest`: entries from `at` on that it has already read but not used.
        """
        ahead = self._stops.get(began)
        if at in self._stops:
            self._followed_s = asyncio.get_running_loop().time()
        self._stops[at] = (
            count if ahead is None else min(2 * ahead, max(count, self._entries_max()))
        )
        if len(self._stops) > _STOPS_MAX:
            del self._stops[next(iter(self._stops))]
        if ahead is not None and not self._is_closed:
            self._go_on(at, ahead, rest)

    def close(self) -> None:
        """Drop everything, now and later."""
        self._is_closed = True
        while self._runs:
            self.drop(next(iter(self._runs.values())))

    def drop(self, run: _Run) -> None:
        """Drop a run. If reads wait for it, it is still read to its end."""
        if run not in self._shared.kept:
            self._shared.dropped_bytes += run.size
        self._forget(run)
        if not run.waiting:
            run.task.cancel()

    async def _take(self, run: _Run, last: EntryId) -> list[Entry]:
        """Wait for a run that is needed up to `last`.

        When it was read to its end it is dropped, or kept if other consumers follow.
        """
        if last >= run.last:
            is_followed = self._now_s() - self._followed_s < self._shared.patience_s
            self._forget(run)
            if is_followed:
                self._remember(run)
                self._shared.kept[run] = self
        run.waiting += 1
        try:
            return await asyncio.shield(run.task)
        finally:
            run.waiting -= 1
            if not run.waiting and self._runs.get(run.first) is not run:
                run.task.cancel()  # no read waits for it any more

    def _go_on(self, at: EntryId, count: int, rest: Sequence[Entry]) -> None:
        """Read ahead from `at` on: `rest`, existing runs, and `count` more entries."""
        new = list(takewhile(lambda entry: entry.entry_id not in self._runs, rest))
        end, entries_max = self._reader.last_entry, self._entries_max()
        if new:
            self._begin(at, EntryId(at + min(len(new), entries_max) - 1), new)
        first = at
        while (run := self._runs.get(first)) is not None:
            first = EntryId(run.last + 1)
        there = first - at
        if there <= entries_max // 2:
            self._begin(first, EntryId(min(end, first + min(count, entries_max - there) - 1)))

    def _before_next_run(self, first: EntryId, last: EntryId) -> EntryId:
        """Return the last entry up to `last` before the next run."""
        return EntryId(
            next((at for at in range(first, last + 1) if at in self._runs), last + 1) - 1
        )

    def _entries_max(self) -> int:
        """Return how many entries a reader may have read ahead."""
        return self._shared.reader_bytes_max // self._average()

    def _average(self) -> int:
        """Return the average size of an entry in bytes."""
        return max(1, self._reader.length // max(1, self._reader.last_entry + 1))

    def _begin(self, first: EntryId, last: EntryId, there: Sequence[Entry] = ()) -> None:
        """Begin a run of entries that are already `there`, or else are read now; not without
        room."""
        last = self._before_next_run(first, last)
        if last < first:
            return
        shared = self._shared
        there = there[: last - first + 1]
        size = _size_of(there) or (last - first + 1) * self._average()
        if not shared.make_room(size):
            return
        task = background.begin(self._read(there, first, last), "read-ahead")
        run = _Run(first, last, size, task)
        self._remember(run)
        task.add_done_callback(lambda done: self._on_read(run, done))

    async def _read(self, there: Sequence[Entry], first: EntryId, last: EntryId) -> list[Entry]:
        return list(there or await self._reader.read(first, last))

    def _on_read(self, run: _Run, done: asyncio.Task[list[Entry]]) -> None:
        """Count the actual size of a run; drop it if it failed or is too large."""
        failed = done.cancelled() or done.exception() is not None
        if self._runs.get(run.first) is not run:
            return
        if failed:
            self.drop(run)
            return
        size = _size_of(done.result())
        self._shared.size += size - run.size
        run.size = size
        if self._shared.size > self._shared.bytes_max:
            self.drop(run)

    def _remember(self, run: _Run) -> None:
        for at in range(run.first, run.last + 1):
            self._runs[EntryId(at)] = run
        self._shared.size += run.size
        loop = asyncio.get_running_loop()
        run.timer = loop.call_later(self._shared.patience_s, self.drop, run)

    def _forget(self, run: _Run) -> None:
        for at in range(run.first, run.last + 1):
            del self._runs[EntryId(at)]
        self._shared.kept.pop(run, None)
        self._shared.size -= run.size
        assert run.timer is not None
        run.timer.cancel()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _size_of(entries: Sequence[Entry]) -> int:
    return sum(len(entry.payload) for entry in entries)
