"""Entries read before anybody asks for them, for readers that go through a ledger in order.

Covers reading ahead. A reader behind the tail cache asks for the next records only after it has
those before, and bookies would be idle meanwhile. So when a read begins where an earlier one
stopped, the entries after it are read at once, and wait for the next read. Each time it goes on
twice as many are read as before, up to its share, and never when half of that is there already:
few large reads cost brokers and bookies a fraction of what many small ones do.

Nothing is decided by what waits here: it is confirmed entries of a ledger, which never change, and
every read asks first, as without them, who leads, which offsets there are and which ledger has
them. A run that failed is forgotten, and whoever wants it reads for himself and gets his own error.

Whoever takes the end of a run has it for himself, unless others go the same way: a read that stops
where another one did says so. From then on runs stay for the others, so that several groups that
catch up read each byte from bookies once; new runs push out those that somebody took, never the
others.

Bounded by bytes over the whole broker and for each reader. A run that nobody takes within a while
is dropped: its reader stopped, or went elsewhere. So is all of a ledger that leaves the partition's
list, and of a partition that is not led here any more.
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

    def make_room(self, size: int) -> bool:
        """Drop runs that were taken until `size` more bytes fit; return whether they do."""
        while self.size + size > self.bytes_max and self.kept:
            run, ledger = next(iter(self.kept.items()))
            ledger.drop(run)
        return self.size + size <= self.bytes_max


class _Run:
    """Entries of one ledger that are being read, or wait."""

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
        """Reads that wait for it."""


class LedgerAhead:
    """Reads one ledger, and ahead of its readers."""

    def __init__(self, shared: ReadAhead, reader: Reader) -> None:
        self._shared = shared
        self._reader = reader
        self._stops: dict[EntryId, int] = {}
        """Where reads stopped, the earliest first; with the entries to read ahead next."""
        self._runs: dict[EntryId, _Run] = {}
        """By each of their entries."""
        self._followed_s = float("-inf")
        """When a read last stopped where another one had."""
        self._is_closed = False

    async def read(self, first: EntryId, last: EntryId) -> list[Entry]:
        """Read an inclusive range. Raises LedgerError."""
        entries: list[Entry] = []
        while (at := EntryId(first + len(entries))) <= last:
            run = self._runs.get(at)
            if run is None:
                entries += await self._reader.read(at, self._before_next_run(at, last))
                continue
            try:
                some = await self._take(run, last)
            except Exception:  # the same read tells whoever wants the entries what is wrong
                return [*entries, *await self._reader.read(at, last)]
            some = some[at - run.first : last - run.first + 1]
            self._shared.used_bytes += _weight(some)
            entries += some
        return entries

    def stopped(self, began: EntryId, at: EntryId, count: int, rest: Sequence[Entry] = ()) -> None:
        """A read that began at an entry stopped at another one and would go on with so many.

        `rest`: what it has from there on already, and did not want yet.
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
        """Let go of a run. One that somebody waits for is read to its end."""
        if run not in self._shared.kept:
            self._shared.dropped_bytes += run.size
        self._forget(run)
        if not run.waiting:
            run.task.cancel()

    async def _take(self, run: _Run, last: EntryId) -> list[Entry]:
        """Wait for a run of which everything up to `last` is wanted.

        With its end it goes to who takes it, or if others follow, stays for them.
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
                run.task.cancel()  # whoever wanted it went away

    def _go_on(self, at: EntryId, count: int, rest: Sequence[Entry]) -> None:
        """Have enough entries from `at` on: `rest`, what is there, and so many more."""
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
        """Return how far up to `last` no run has any entry."""
        return EntryId(
            next((at for at in range(first, last + 1) if at in self._runs), last + 1) - 1
        )

    def _entries_max(self) -> int:
        """Return how many entries are as much as a reader may have."""
        return self._shared.reader_bytes_max // self._average()

    def _average(self) -> int:
        """Return about how many bytes an entry has."""
        return max(1, self._reader.length // max(1, self._reader.last_entry + 1))

    def _begin(self, first: EntryId, last: EntryId, there: Sequence[Entry] = ()) -> None:
        """Have a run, of entries that are `there` or else read now; without room have none."""
        last = self._before_next_run(first, last)
        if last < first:
            return
        shared = self._shared
        there = there[: last - first + 1]
        size = _weight(there) or (last - first + 1) * self._average()
        if not shared.make_room(size):
            return
        task = background.begin(self._read(there, first, last), "read-ahead")
        run = _Run(first, last, size, task)
        self._remember(run)
        task.add_done_callback(lambda done: self._on_read(run, done))

    async def _read(self, there: Sequence[Entry], first: EntryId, last: EntryId) -> list[Entry]:
        return list(there or await self._reader.read(first, last))

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


def _weight(entries: Sequence[Entry]) -> int:
    return sum(len(entry.payload) for entry in entries)
