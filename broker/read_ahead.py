"""Entries read before anybody asks for them, for readers that go through a ledger in order.

This file is the only home of reading ahead. A reader behind the tail cache asks for the next
records only after it has those before, and bookies would be idle meanwhile. So when a read begins
where an earlier one stopped, the entries after it are read at once, and wait for the next read.

Nothing is decided by what waits here: it is confirmed entries of a ledger, which never change, and
every read asks first, as without them, who leads, which offsets there are and which ledger has
them. A run that failed is forgotten, and whoever wants it reads for himself and gets his own error.

Whoever takes a run has it for himself, unless others go the same way: a read that stops where
another one did says so. From then on runs stay for the others, so that several groups that catch
up read each byte from bookies once; new runs push out those that somebody took, never the others.

Bounded by bytes over the whole broker and for each reader. A run that nobody takes within a while
is dropped: its reader stopped, or went elsewhere. So is all of a ledger that leaves the partition's
list, and of a partition that is not led here any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.ledgers import Reader
from client.ids import EntryId
from client.wire.bookkeeper.entry import Entry

_STOPS_MAX: Final = 64
"""Readers of one ledger that are recognised when they go on."""


class ReadAhead:
    """The bounds that all partitions share, and what is counted."""

    def __init__(
        self, bytes_max: int = 0, reader_bytes_max: int = 8 << 20, patience_s: float = 2.0
    ) -> None:
        """`bytes_max` 0: nothing is read ahead. `patience_s`: how long a run may wait."""
        self.bytes_max = bytes_max
        self.reader_bytes_max = reader_bytes_max
        self.patience_s = patience_s
        self.size = 0
        """Bytes of all runs, also of those under way, as far as known."""
        self.used_bytes = 0
        """Of runs that were taken."""
        self.dropped_bytes = 0
        """Of runs that were read, or begun, for nothing."""
        self.kept: dict[_Run, LedgerAhead] = {}
        """Runs that were taken and stay for others, the longest untouched first."""

    def of(self, reader: Reader) -> LedgerAhead:
        """Return what is read ahead in one ledger: nothing yet."""
        return LedgerAhead(self, reader)

    def has_room(self, size: int) -> bool:
        """Whether there is room for `size` more bytes, if need be without runs that were taken."""
        while self.size + size > self.bytes_max and self.kept:
            run, ledger = next(iter(self.kept.items()))
            ledger.drop(run)
        return self.size + size <= self.bytes_max


class _Run:
    """Entries of one ledger that are being read, or wait."""

    __slots__ = ("first", "last", "size", "task", "timer")

    def __init__(
        self, first: EntryId, last: EntryId, size: int, task: asyncio.Task[list[Entry]]
    ) -> None:
        self.first = first
        self.last = last
        self.size = size
        self.task = task
        self.timer: asyncio.TimerHandle | None = None


class LedgerAhead:
    """Reads one ledger, and ahead of its readers."""

    def __init__(self, shared: ReadAhead, reader: Reader) -> None:
        self._shared = shared
        self._reader = reader
        self._stops: dict[EntryId, None] = {}
        """Where reads stopped, the earliest first."""
        self._runs: dict[EntryId, _Run] = {}
        """By first entry."""
        self._followed_s = float("-inf")
        """When a read last stopped where another one had."""
        self._is_closed = False

    async def read(self, first: EntryId, last: EntryId) -> list[Entry]:
        """Read an inclusive range. Raises LedgerError."""
        run = self._runs.get(first)
        if run is None:
            return list(await self._reader.read(first, last))
        try:
            entries = await (asyncio.shield(run.task) if self._keep(run) else run.task)
        except Exception:  # the same read tells whoever wants the entries what is wrong
            return list(await self._reader.read(first, last))
        entries = entries[: last - first + 1]
        self._shared.used_bytes += _weight(entries)
        if run.last < last:
            entries += await self._reader.read(EntryId(run.last + 1), last)
        return entries

    def stopped(self, began: EntryId, at: EntryId, count: int, rest: Sequence[Entry] = ()) -> None:
        """A read that began at an entry stopped at another one and would go on with so many.

        `rest`: what it has from there on already, and did not want yet.
        """
        goes_on = began in self._stops
        if at in self._stops:
            self._followed_s = asyncio.get_running_loop().time()
        self._stops[at] = None
        if len(self._stops) > _STOPS_MAX:
            del self._stops[next(iter(self._stops))]
        if goes_on and not self._is_closed and at not in self._runs:
            self._begin(at, count, rest)

    def close(self) -> None:
        """Drop everything, now and later."""
        self._is_closed = True
        for run in list(self._runs.values()):
            self.drop(run)

    def drop(self, run: _Run) -> None:
        """Let go of a run. One that was taken is read to its end: somebody may wait for it."""
        if run not in self._shared.kept:
            self._shared.dropped_bytes += run.size
            run.task.cancel()
        self._forget(run)

    def _keep(self, run: _Run) -> bool:
        """Somebody takes a run: keep it for others if there are any, or else let go of it."""
        loop, shared = asyncio.get_running_loop(), self._shared
        self._forget(run)
        if loop.time() - self._followed_s >= shared.patience_s:
            return False
        self._remember(run)
        shared.kept[run] = self
        return True

    def _begin(self, first: EntryId, count: int, rest: Sequence[Entry]) -> None:
        shared, end = self._shared, self._reader.last_entry
        average = max(1, self._reader.length // (end + 1)) if end >= first else 1
        count = min(count, end - first + 1, shared.reader_bytes_max // average)
        size = count * average
        if count < 1 or not shared.has_room(size):
            return
        last = EntryId(first + count - 1)
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._read_run(rest[:count], first, last), name="read-ahead")
        run = _Run(first, last, size, task)
        self._remember(run)
        task.add_done_callback(lambda done: self._on_read(run, done))

    async def _read_run(self, rest: Sequence[Entry], first: EntryId, last: EntryId) -> list[Entry]:
        entries = list(rest)
        begin = EntryId(first + len(entries))
        if begin <= last:
            entries += await self._reader.read(begin, last)
        return entries

    def _on_read(self, run: _Run, done: asyncio.Task[list[Entry]]) -> None:
        """Count what a run really weighs; one that failed, or is too heavy, is of no use."""
        failed = done.cancelled() or done.exception() is not None
        if self._runs.get(run.first) is not run:
            return
        if failed:
            self.drop(run)
            return
        size = _weight(done.result())
        self._shared.size += size - run.size
        run.size = size
        if self._shared.size > self._shared.bytes_max:
            self.drop(run)

    def _remember(self, run: _Run) -> None:
        self._runs[run.first] = run
        self._shared.size += run.size
        loop = asyncio.get_running_loop()
        run.timer = loop.call_later(self._shared.patience_s, self.drop, run)

    def _forget(self, run: _Run) -> None:
        del self._runs[run.first]
        self._shared.kept.pop(run, None)
        self._shared.size -= run.size
        assert run.timer is not None
        run.timer.cancel()


def _weight(entries: Sequence[Entry]) -> int:
    return sum(len(entry.payload) for entry in entries)
