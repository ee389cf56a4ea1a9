"""All ledger directories of a bookie as one storage: where a ledger is, where a new one goes.

A ledger stays in one directory for good: key, fence and entries are together, so a fence can never
miss an add that goes elsewhere. A ledger nobody knows goes to one of the directories that take
adds, by its id; a fence of an unknown ledger goes to any that works. But where damage took records
that nobody can name, a ledger that seems unknown may have been there: it is looked for there and
nowhere else. A directory whose disk failed answers errors for its ledgers; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import takewhile

from bookie.errors import LogIncomplete
from bookie.metrics import BookieMetrics
from bookie.storage.core.disk_space import AcceptedAdds
from bookie.storage.core.group_commit import NOBODY, Backlog, OnDone
from bookie.storage.disk import Usage
from bookie.storage.ledger_directory import (
    Directory,
    LedgerDirectory,
    LedgerDirectoryLimits,
    begin_replay,
    make_ledger_directory,
)
from bookie.storage.storage import Storage
from client.ids import LedgerId
from client.wire.bookkeeper.messages import AddRequest, Status


class LedgerDirectories:
    """What requests are served from: `storage_of` a ledger does all that is about one ledger.

    `add` and `add_run` are those of `Storage`, for adds come by the thousand.
    """

    def __init__(self, ledger_directories: Sequence[LedgerDirectory], backlog: Backlog) -> None:
        """Raises LogIncomplete if a ledger is on two ledger directories."""
        self.directories = tuple(ledger_directories)
        self.backlog = backlog
        self._storages = [ledger_directory.storage for ledger_directory in ledger_directories]
        self._only = self._storages[0] if len(self._storages) == 1 else None
        only = self._only
        self.add = self._add if only is None else only.add
        """`Storage.add` of the directory that the ledger is in, or goes to."""
        self.add_run = self._add_run if only is None else only.add_run
        """The same of `Storage.add_run`; a run ends where another ledger directory's begins."""
        seen: dict[LedgerId, str] = {}
        for ledger_directory in ledger_directories if self._only is None else ():
            for ledger_id in ledger_directory.storage.ledgers.ids():
                other = seen.setdefault(ledger_id, ledger_directory.path)
                if other != ledger_directory.path:
                    raise LogIncomplete(
                        f"ledger {ledger_id} is both in {other} and in {ledger_directory.path}:"
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
        taking = [storage for storage in working if storage.accept is AcceptedAdds.ALL]
        choice = taking or working or self._storages
        return choice[ledger_id % len(choice)]

    def _add(self, request: AddRequest, on_done: OnDone, connection: Hashable = NOBODY) -> None:
        self.storage_of(request.ledger_id).add(request, on_done, connection)

    def _add_run(self, requests: Sequence[AddRequest], on_done: OnDone) -> int:
        storage = self.storage_of(requests[0].ledger_id)
        of_it = takewhile(lambda each: self.storage_of(each.ledger_id) is storage, requests)
        return storage.add_run(list(of_it), on_done)

    @property
    def ledger_ids(self) -> list[LedgerId]:
        """Ids of all ledgers that could be deleted, ascending."""
        working = [storage for storage in self._storages if not storage.is_failed]
        return sorted(ledger_id for storage in working for ledger_id in storage.ledgers.ids())

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
        gauges["ledgers"] = lambda: sum(len(storage.ledgers) for storage in storages)
        gauges["pending_bytes"] = lambda: self.backlog.bytes
        gauges["pending_entries"] = lambda: sum(
            each.pending.turns.count
            + each.writer.commit.pending_entries
            + each.indexer.waiting_entries
            for each in storages
        )
        gauges["waiting_adds"] = lambda: sum(each.pending.turns.count for each in storages)
        gauges["waiting_reads"] = lambda: sum(each.reads.waiting for each in storages)
        gauges["waiting_bytes"] = lambda: sum(self.backlog.waiting.values())
        gauges["open_group_requests"] = lambda: sum(s.writer.commit.open.requests for s in storages)
        gauges["groups_in_flight"] = lambda: sum(
            s.writer.commit.in_flight is not None for s in storages
        )
        gauges["cache_entries"] = lambda: sum(len(storage.cache) for storage in storages)
        gauges["cache_bytes"] = lambda: sum(storage.cache.entry_bytes for storage in storages)
        gauges["index_bytes"] = lambda: sum(storage.indexer.memory_bytes for storage in storages)
        gauges["damaged_ranges"] = lambda: sum(
            len(storage.indexer.checkpoint.damage) for storage in storages
        )
        gauges["failed_directories"] = lambda: sum(storage.is_failed for storage in storages)
        for ledger_directory in self.directories:
            metrics.directories[ledger_directory.path] = partial(
                getattr, ledger_directory, "used_part"
            )

    async def usage(self) -> Usage:
        """Return the space of all disks together. Raises OSError."""
        jobs = [
            ledger_directory.disk.reader_job(ledger_directory.disk.usage)
            for ledger_directory in self.directories
        ]
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


async def open_ledger_directories(
    directories: Sequence[Directory],
    limits: LedgerDirectoryLimits,
    *,
    backlog: Backlog,
    loop: asyncio.AbstractEventLoop,
    metrics: BookieMetrics,
    on_failed: Callable[[str, BaseException], None],
) -> LedgerDirectories:
    """Open all directories at the same time. `on_failed` gets a directory and what happened.

    Raises StorageError, OSError.
    """
    replays = [begin_replay(directory, limits) for directory in directories]
    await asyncio.wait(replays)
    ledger_directories = [
        make_ledger_directory(
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
    return LedgerDirectories(ledger_directories, backlog)
