"""All shelves of a bookie as one storage: which shelf a ledger is on, and which a new one gets.

A ledger known to a shelf is on that shelf, for good: key, fence and entries are together, so a
fence can never miss an add that goes elsewhere. A ledger nobody knows goes to one of the shelves
that take adds, by its id; fences of unknown ledgers take any shelf that works. But where damage
took records that nobody can name, a ledger that seems unknown may have been: it is looked for there
and nowhere else. A shelf whose disk failed answers errors for its ledgers; the others go on. This
file is the only home of that choice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile

from bookie.core.accept import Accept
from bookie.core.backlog import Backlog
from bookie.core.group_commit import OnDone
from bookie.disk import Usage
from bookie.errors import LogIncomplete
from bookie.metrics import BookieMetrics
from bookie.reads import OnEntryIds, OnLedger, OnRead, OnRun
from bookie.shelf import Directory, Shelf, ShelfLimits, begin_replay, make_shelf
from bookie.storage import Storage
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import AddRequest, Status, WriteLacRequest


class Shelves:
    """What requests are served from. Every method is that of `Storage` or `Reads`."""

    def __init__(self, shelves: Sequence[Shelf], backlog: Backlog) -> None:
        """Raises LogIncomplete if a ledger is on two shelves."""
        self.shelves = tuple(shelves)
        self.backlog = backlog
        self._storages = [shelf.storage for shelf in shelves]
        self._only = self._storages[0] if len(self._storages) == 1 else None
        seen: dict[LedgerId, str] = {}
        for shelf in shelves if self._only is None else ():
            for ledger_id in shelf.storage.ledger_ids:
                other = seen.setdefault(ledger_id, shelf.path)
                if other != shelf.path:
                    raise LogIncomplete(
                        f"ledger {ledger_id} is both in {other} and in {shelf.path}:"
                        " one of them is a copy"
                    )

    def storage_of(self, ledger_id: LedgerId) -> Storage:
        """Return where the ledger is, or would go."""
        if self._only is not None:
            return self._only
        for storage in self._storages:
            if storage.has(ledger_id):
                return storage
        for storage in self._storages:
            if storage.has_damage:
                return storage
        working = [storage for storage in self._storages if not storage.is_failed]
        taking = [storage for storage in working if storage.accept is Accept.ALL]
        choice = taking or working or self._storages
        return choice[ledger_id % len(choice)]

    def add(self, request: AddRequest, on_done: OnDone) -> None:
        (self._only or self.storage_of(request.ledger_id)).add(request, on_done)

    def add_run(self, requests: Sequence[AddRequest], on_done: OnDone) -> int:
        """The same; a run ends where another shelf's begins."""
        if self._only is not None:
            return self._only.add_run(requests, on_done)
        storage = self.storage_of(requests[0].ledger_id)
        of_it = takewhile(lambda each: self.storage_of(each.ledger_id) is storage, requests)
        return storage.add_run(list(of_it), on_done)

    def fence(self, ledger_id: LedgerId, master_key: bytes, on_done: OnDone) -> None:
        self.storage_of(ledger_id).fence(ledger_id, master_key, on_done)

    def write_lac(self, request: WriteLacRequest, on_done: OnDone) -> None:
        self.storage_of(request.ledger_id).write_lac(request, on_done)

    def force(self, ledger_id: LedgerId, on_done: OnDone) -> None:
        self.storage_of(ledger_id).force(ledger_id, on_done)

    def read(self, ledger_id: LedgerId, entry_id: EntryId, on_read: OnRead) -> None:
        self.storage_of(ledger_id).reads.read(ledger_id, entry_id, on_read)

    def read_run(
        self, ledger_id: LedgerId, first: EntryId, count_max: int, bytes_max: int, on_run: OnRun
    ) -> None:
        reads = self.storage_of(ledger_id).reads
        reads.read_run(ledger_id, first, count_max, bytes_max, on_run)

    def with_ledger(self, ledger_id: LedgerId, on_ledger: OnLedger) -> None:
        self.storage_of(ledger_id).reads.with_ledger(ledger_id, on_ledger)

    def entry_ids(self, ledger_id: LedgerId, on_ids: OnEntryIds) -> None:
        self.storage_of(ledger_id).reads.entry_ids(ledger_id, on_ids)

    @property
    def ledger_ids(self) -> list[LedgerId]:
        """Ids of all ledgers that could be deleted, ascending."""
        working = [storage for storage in self._storages if not storage.is_failed]
        return sorted(ledger_id for storage in working for ledger_id in storage.ledger_ids)

    def delete(self, ledger_id: LedgerId, time_ms: int) -> asyncio.Future[Status]:
        """Delete a ledger; see `Storage.delete`."""
        done: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

        def on_done(status: Status) -> None:
            if not done.done():
                done.set_result(status)

        self.storage_of(ledger_id).delete(ledger_id, time_ms, on_done)
        return done

    def publish(self, metrics: BookieMetrics) -> None:
        """Let metrics look at what is here."""
        storages, gauges = self._storages, metrics.gauges
        gauges["ledgers"] = lambda: sum(storage.ledger_count for storage in storages)
        gauges["pending_bytes"] = lambda: self.backlog.bytes
        gauges["pending_entries"] = lambda: sum(
            each.commit.pending_entries + each.indexer.waiting_entries for each in storages
        )
        gauges["open_group_requests"] = lambda: sum(s.commit.open.requests for s in storages)
        gauges["groups_in_flight"] = lambda: sum(s.commit.in_flight is not None for s in storages)
        gauges["cache_entries"] = lambda: sum(len(storage.cache) for storage in storages)
        gauges["cache_bytes"] = lambda: sum(storage.cache.entry_bytes for storage in storages)
        gauges["damaged_ranges"] = lambda: sum(storage.damaged_ranges for storage in storages)
        gauges["failed_directories"] = lambda: sum(storage.is_failed for storage in storages)
        for shelf in self.shelves:
            metrics.directories[shelf.path] = partial(getattr, shelf, "used_part")

    async def usage(self) -> Usage:
        """Return the space of all disks together. Raises OSError."""
        jobs = [shelf.disk.reader_job(shelf.disk.usage) for shelf in self.shelves]
        usages = await asyncio.gather(*jobs)
        return Usage(sum(usage.total for usage in usages), sum(usage.free for usage in usages))

    async def drain(self) -> None:
        """Wait until everything accepted is answered."""
        for storage in self._storages:
            await storage.drain()

    async def close(self) -> None:
        """Wait until everything accepted is durable and indexed, then close the indexes."""
        for storage in self._storages:
            await storage.close()


async def open_shelves(
    directories: Sequence[Directory],
    limits: ShelfLimits,
    *,
    backlog: Backlog,
    loop: asyncio.AbstractEventLoop,
    metrics: BookieMetrics,
    on_failed: Callable[[str, BaseException], None],
) -> Shelves:
    """Open all directories at the same time. `on_failed` gets a directory and what happened.

    Raises StorageError, OSError.
    """
    replays = [begin_replay(directory, limits) for directory in directories]
    await asyncio.wait(replays)
    shelves = [
        make_shelf(
            directory,
            replayed.result(),
            limits,
            backlog=backlog,
            loop=loop,
            metrics=metrics,
            on_failed=partial(on_failed, directory.path),
        )
        for directory, replayed in zip(directories, replays, strict=True)
    ]
    return Shelves(shelves, backlog)
