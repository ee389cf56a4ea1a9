"""A directory with ledgers in use: its disk, what is stored there, and what reclaims space.

A bookie has one ledger directory or several, each on a disk of its own. They share nothing: each
has its own log, index, checkpoint and threads, so none waits for another and no mark has to cover
two (Apache BookKeeper issues 3329, 4105, 4844). A ledger is in one of them and stays there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bookie.metrics import BookieMetrics
from bookie.storage.compactor import Compactor, CompactorLimits
from bookie.storage.core.disk_space import Space
from bookie.storage.core.group_commit import Backlog
from bookie.storage.disk import Disk
from bookie.storage.index.index import IndexFactory
from bookie.storage.replay import Replayed, replay
from bookie.storage.storage import Storage, StorageLimits


class Directory(NamedTuple):
    """Where a ledger directory keeps its data."""

    path: str
    disk: Disk
    index_factory: IndexFactory


class LedgerDirectoryLimits(NamedTuple):
    """Bounds of a ledger directory."""

    log_file_bytes_max: int
    storage: StorageLimits
    compactor: CompactorLimits


class LedgerDirectory:
    """One directory in use."""

    def __init__(self, directory: Directory, storage: Storage, compactor: Compactor) -> None:
        self.path = directory.path
        self.disk = directory.disk
        self.storage = storage
        self.compactor = compactor
        self.space = Space.PLENTY
        """As of the last look."""
        self.used_part = 0.0
        """Usage of the disk, 0 to 1, as of the last look."""
        self.takes_priority = True
        """Whether there is room for urgent adds, as of the last look."""


def begin_replay(directory: Directory, limits: LedgerDirectoryLimits) -> asyncio.Future[Replayed]:
    """Replay a directory's log in its own thread. The future raises StorageError, OSError."""
    _, disk, index_factory = directory
    return disk.index_job(
        partial(replay, disk, index_factory, log_file_bytes_max=limits.log_file_bytes_max)
    )


def make_ledger_directory(
    directory: Directory,
    replayed: Replayed,
    limits: LedgerDirectoryLimits,
    *,
    backlog: Backlog,
    loop: asyncio.AbstractEventLoop,
    metrics: BookieMetrics,
    on_failed: Callable[[BaseException], None],
) -> LedgerDirectory:
    """Return a directory whose log was replayed, ready to serve."""
    storage = Storage(
        replayed,
        directory.disk,
        limits.storage,
        backlog=backlog,
        loop=loop,
        metrics=metrics,
        on_failed=on_failed,
    )
    compactor = Compactor(
        directory.disk,
        replayed.index,
        storage.indexer,
        limits.compactor,
        salt=replayed.checkpoint.salt,
        next_copy=replayed.next_copy,
        metrics=metrics,
    )
    return LedgerDirectory(directory, storage, compactor)
