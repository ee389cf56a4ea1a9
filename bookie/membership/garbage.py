"""Garbage collection: deletes ledgers that are not needed here, then reclaims log files.

A round, every `gc_wait` or when somebody asks for one:

    1  which local ledgers did the cluster delete? (`cluster_ledgers.py`)  delete them
    2  seldom: which closed ledgers live on other bookies only?            delete them, under a lock
    3  forget fenced and deleted ledgers after a week
    4  give back log files; rewrite those that are nearly empty, thoroughly once a day

Everything is one after the other, in small steps, and a round that fails is tried again at the
next one.

Source: Apache BookKeeper `GarbageCollectorThread`, `ScanAndCompareGarbageCollector`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bookie.errors import StorageError
from bookie.membership.cluster_ledgers import ClusterLedgers, WrongCluster
from bookie.metrics import BookieMetrics
from bookie.storage.ledger_directories import LedgerDirectories
from bookie.storage.storage import Storage
from client.errors import LedgerError, MetadataError
from client.ids import Clock, LedgerId
from client.node import background
from client.wire.bookkeeper.messages import Status

logger = logging.getLogger(__name__)

_DELETED_AT_ONCE: Final = 16
_SCARCE_WAIT_S: Final = 60.0
"""Least pause before a round because space is scarce."""


class GarbageLimits(NamedTuple):
    """See the fields of the same names in `config.py`."""

    wait_s: float
    overreplicated_wait_s: float
    minor_threshold: float
    minor_interval_s: float
    major_threshold: float
    major_interval_s: float
    deletion_memory_ms: int


@dataclass
class Compaction:
    """One kind of rewriting: how far it goes, when it last ran, whether it may."""

    threshold: float
    interval_s: float
    last_s: float
    """Loop time of the last run, or of the start."""
    last_ms: int = 0
    """Wall time of the last run; 0 for never."""
    count: int = 0
    is_running: bool = False
    is_suspended: bool = False
    is_asked_for: bool = False

    def is_due(self, now_s: float) -> bool:
        """Whether it should run in the round that begins now."""
        if self.is_suspended or self.threshold <= 0:
            return False
        return self.is_asked_for or now_s - self.last_s >= self.interval_s


class GarbageCollection:
    """The rounds of one bookie. `start` once, `stop` once."""

    def __init__(
        self,
        ledger_directories: LedgerDirectories,
        cluster: ClusterLedgers,
        limits: GarbageLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        metrics: BookieMetrics,
    ) -> None:
        self._directories = ledger_directories
        self._cluster = cluster
        self._limits = limits
        self._loop = loop
        self._clock = clock
        self._metrics = metrics
        now_s = loop.time()
        self.minor = Compaction(limits.minor_threshold, limits.minor_interval_s, now_s)
        self.major = Compaction(limits.major_threshold, limits.major_interval_s, now_s)
        self.is_forced = False
        """Whether somebody asked for a round that has not ended yet."""
        self._overreplicated_at_s = now_s
        self._is_running = False
        self._ended_at_s = float("-inf")
        """When the last round ended."""
        self._marks: dict[Storage, int] = {}
        """The open group of each storage when the last round began: see `_is_quiet`."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with the rounds; the first one comes after a wait."""
        self._task = background.keep(self._run, "garbage-collection", self._loop)

    async def stop(self) -> None:
        """End at once; the next life of the bookie completes what was begun."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def ask(self, *, minor: bool = False, major: bool = False) -> None:
        """Have a round now, with or without rewriting files."""
        self.minor.is_asked_for |= minor
        self.major.is_asked_for |= major
        self.is_forced = True
        self._wake.set()

    def space_is_scarce(self) -> None:
        """Have a thorough round soon, but not one behind the other."""
        if not self._is_running and self._loop.time() - self._ended_at_s >= _SCARCE_WAIT_S:
            self.ask(minor=True, major=True)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._limits.wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self._is_running = True
            began_s = self._metrics.stopwatch()
            try:
                await self.round()
                self._metrics.gc_seconds.observe(self._metrics.stopwatch() - began_s)
            except (MetadataError, StorageError, WrongCluster, OSError) as error:
                logger.warning("gc.round_failed error=%r", error)
            finally:
                self._is_running = False
                self.is_forced = self._wake.is_set()
                self._ended_at_s = self._loop.time()

    async def round(self) -> None:
        """One round. Raises MetadataError, WrongCluster, StorageError, OSError.

        Space is given back even when the metadata store is away.
        """
        failure: MetadataError | WrongCluster | None = None
        try:
            await self._collect()
        except (MetadataError, WrongCluster) as error:
            failure = error
        await self._reclaim()
        if failure is not None:
            raise failure
        self._metrics.gc_rounds += 1

    async def _collect(self) -> None:
        local = self._directories.ledger_ids
        marks = {
            ledger_directory.storage: ledger_directory.storage.newest_group
            for ledger_directory in self._directories.directories
        }
        gone = await self._cluster.deleted(local)
        await self._delete(gone)
        now_s = self._loop.time()
        if now_s - self._overreplicated_at_s >= self._limits.overreplicated_wait_s and self._marks:
            self._overreplicated_at_s = now_s
            await self._drop_overreplicated(set(local).difference(gone))
        self._marks = marks

    async def _delete(self, ledger_ids: Sequence[LedgerId]) -> None:
        now_ms = self._clock.now_ms()
        for first in range(0, len(ledger_ids), _DELETED_AT_ONCE):
            some = ledger_ids[first : first + _DELETED_AT_ONCE]
            deleting = [self._directories.delete(ledger_id, now_ms) for ledger_id in some]
            for ledger_id, status in zip(some, await asyncio.gather(*deleting), strict=True):
                if status is not Status.OK:
                    logger.warning("gc.not_deleted ledger=%d status=%s", ledger_id, status.name)

    async def _drop_overreplicated(self, ledger_ids: set[LedgerId]) -> None:
        """Drop ledgers whose copies are elsewhere, unless somebody may be copying them here."""
        for ledger_id in sorted(ledger_ids):
            try:
                if not await self._is_superfluous(ledger_id):
                    continue
                async with self._cluster.locked(ledger_id) as is_locked:
                    # It may have been moved to this bookie before we had the lock.
                    if is_locked and await self._is_superfluous(ledger_id):
                        logger.info("gc.over_replicated ledger=%d", ledger_id)
                        await self._delete([ledger_id])
            except LedgerError as error:
                logger.warning("gc.unreadable_metadata ledger=%d error=%r", ledger_id, error)

    async def _is_superfluous(self, ledger_id: LedgerId) -> bool:
        return self._is_quiet(ledger_id) and await self._cluster.is_over_replicated(ledger_id)

    def _is_quiet(self, ledger_id: LedgerId) -> bool:
        """Whether nothing was added to the ledger since the last round began.

        Copies made by hand (`recover`) take no lock and change the metadata when all is copied.
        """
        storage = self._directories.storage_of(ledger_id)
        return storage.is_quiet(ledger_id, self._marks[storage])

    async def _reclaim(self) -> None:
        now_s, now_ms = self._loop.time(), self._clock.now_ms()
        due = [kind for kind in (self.major, self.minor) if kind.is_due(now_s)]
        for kind in due:
            kind.is_running = True
            kind.is_asked_for = False
            kind.last_s = now_s
            if kind is self.major:
                # The thorough look sees what the other one would.
                self.minor.last_s = now_s
        threshold = due[0].threshold if due else 0.0
        try:
            for ledger_directory in self._directories.directories:
                if not ledger_directory.storage.is_failed:
                    forget_ms = now_ms - self._limits.deletion_memory_ms
                    await ledger_directory.storage.forget_deletions(forget_ms)
                    await ledger_directory.compactor.run(threshold, now_ms)
        finally:
            for kind in due:
                kind.is_running = False
                kind.last_ms = now_ms
                kind.count += 1
            self._metrics.major_compactions = self.major.count
            self._metrics.minor_compactions = self.minor.count
