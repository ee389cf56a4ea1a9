"""A directory with ledgers in use: its disk, what is stored there, and what gives space back.

A bookie has one shelf or several, each on a disk of its own. They share nothing: every shelf has
its log, its index, its checkpoint and its threads, so none waits for another and no mark has to
cover two (Apache BookKeeper issues 3329, 4105, 4844). A ledger is on one shelf and stays there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bookie.core.backlog import Backlog
from bookie.core.disk_space import Space
from bookie.disk import Disk
from bookie.index import IndexFactory
from bookie.metrics import BookieMetrics
from bookie.replay import Replayed, replay
from bookie.rewriter import Rewriter, RewriterLimits
from bookie.storage import Storage, StorageLimits


class Directory(NamedTuple):
    """Where a shelf keeps its data."""

    path: str
    disk: Disk
    index_factory: IndexFactory


class ShelfLimits(NamedTuple):
    """Bounds of a shelf."""

    log_file_bytes_max: int
    storage: StorageLimits
    rewriter: RewriterLimits


class Shelf:
    """One directory in use."""

    def __init__(self, directory: Directory, storage: Storage, rewriter: Rewriter) -> None:
        self.path = directory.path
        self.disk = directory.disk
        self.storage = storage
        self.rewriter = rewriter
        self.space = Space.PLENTY
        """As of the last look."""
        self.used_part = 0.0
        """Usage of the disk, 0 to 1, as of the last look."""
        self.takes_priority = True
        """Whether there is room for urgent adds, as of the last look."""


def begin_replay(directory: Directory, limits: ShelfLimits) -> asyncio.Future[Replayed]:
    """Replay a directory's log in its own thread. The future raises StorageError, OSError."""
    _, disk, index_factory = directory
    return disk.index_job(
        partial(replay, disk, index_factory, log_file_bytes_max=limits.log_file_bytes_max)
    )


def make_shelf(
    directory: Directory,
    replayed: Replayed,
    limits: ShelfLimits,
    *,
    backlog: Backlog,
    loop: asyncio.AbstractEventLoop,
    metrics: BookieMetrics,
    on_failed: Callable[[BaseException], None],
) -> Shelf:
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
    rewriter = Rewriter(
        directory.disk,
        replayed.index,
        storage.indexer,
        limits.rewriter,
        salt=replayed.checkpoint.salt,
        next_copy=replayed.next_copy,
        metrics=metrics,
    )
    return Shelf(directory, storage, rewriter)
