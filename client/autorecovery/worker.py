"""The replication worker: take a marked ledger, lock it, repair it, remove the mark.

Covers who works on what, and when again. The lock is an ephemeral node, so a worker that dies
gives its ledger back; it is kept while a ledger waits to be tried again, so that not every worker
of the cluster tries the same in vain. A mark is removed by the version it had before the work
began: one that was set again meanwhile stays.

Source: Apache BookKeeper `ReplicationWorker`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.core.repair import ReplicationResult
from client.autorecovery.fragment_replicator import FragmentReplicator
from client.autorecovery.metrics import RecoveryStats
from client.autorecovery.tree import ReplicationTree
from client.errors import LedgerError, MetadataError
from client.ids import LedgerId, Rng
from client.ledger.under_replication import Mark, read_mark, remove_mark
from client.metadata.store import MetadataStore

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pending:
    """A ledger that could not be finished."""

    due_s: float
    failures: int = 0
    writer_left_s: float | None = None
    """Since when members of its open ensemble are known to be gone."""


class Worker:
    """One worker; `run` for as long as it should work."""

    def __init__(
        self,
        store: MetadataStore,
        tree: ReplicationTree,
        replicator: FragmentReplicator,
        config: AutoRecoveryConfig,
        rng: Rng,
        root: str,
        stats: RecoveryStats | None = None,
    ) -> None:
        """`stats`: where to count."""
        self._stats = stats or RecoveryStats()
        self._store = store
        self._tree = tree
        self._replicator = replicator
        self._config = config
        self._rng = rng
        self._root = root
        self._pending: dict[LedgerId, _Pending] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self.round()
            except MetadataError as error:
                log.warning("autorecovery.round_failed error=%r", error)
            await asyncio.sleep(self._pause_s())

    async def round(self) -> None:
        """Try every marked ledger once that is due and free. Raises MetadataError."""
        marked = await self._tree.marked_ledgers()
        stats = self._stats
        stats.under_replicated_ledgers = len(marked)
        stats.enabled = not await self._tree.switches.is_disabled()
        for ledger_id in [known for known in self._pending if known not in marked]:
            await self._give_back(ledger_id)
        for ledger_id in self._shuffled(marked):
            if await self._tree.switches.is_disabled():
                return
            pending = self._pending.get(ledger_id)
            if pending is None or pending.due_s <= asyncio.get_running_loop().time():
                await self._take(ledger_id)
                stats.waiting_ledgers = len(self._pending)

    async def _take(self, ledger_id: LedgerId) -> None:
        try:
            is_locked = await self._tree.lock(ledger_id)
        except MetadataError:
            self._later(ledger_id)  # it may be locked: used or given back then (LOCK-OURS)
            raise
        if not is_locked:
            self._pending.pop(ledger_id, None)
            return
        try:
            mark = await read_mark(self._store, ledger_id, root=self._root)
            is_done = mark is None or await self._work(ledger_id, mark)
        except LedgerError as error:
            self._stats.failed_repairs += 1
            log.warning("autorecovery.failed ledger=%d error=%r", ledger_id, error)
            self._later(ledger_id)
            return
        except MetadataError:
            # The mark may be gone although nobody said so: then only we know of our lock.
            self._later(ledger_id)
            raise
        if is_done:
            await self._give_back(ledger_id)

    async def _work(self, ledger_id: LedgerId, mark: Mark) -> bool:
        """Repair a ledger; return whether its mark is gone. Raises LedgerError, MetadataError."""
        began_s = self._stats.now_s()
        outcome = await self._replicator.replicate(ledger_id, mark.bookies)
        self._stats.repair_seconds.observe(self._stats.now_s() - began_s)
        if outcome is ReplicationResult.WRITER_LEFT:
            if not self._has_waited(ledger_id):
                return False
            await self._replicator.close(ledger_id)
            self._stats.closed_ledgers += 1
            outcome = await self._replicator.replicate(ledger_id, mark.bookies)
        elif ledger_id in self._pending:
            self._pending[ledger_id].writer_left_s = None
        if outcome is ReplicationResult.WHOLE:
            if await remove_mark(self._store, ledger_id, mark.version, root=self._root):
                self._stats.repaired_ledgers += 1
                log.info("autorecovery.repaired ledger=%d", ledger_id)
                return True
            self._pending.pop(ledger_id, None)  # marked again: look again at once
            return True
        self._stats.unfinished_repairs += 1
        log.info("autorecovery.unfinished ledger=%d outcome=%s", ledger_id, outcome.name)
        self._later(ledger_id)
        return False

    def _has_waited(self, ledger_id: LedgerId) -> bool:
        """Whether a writer had its time to replace lost bookies; else come back then."""
        now_s = asyncio.get_running_loop().time()
        pending = self._pending.setdefault(ledger_id, _Pending(now_s))
        if pending.writer_left_s is None:
            pending.writer_left_s = now_s
        pending.due_s = pending.writer_left_s + self._config.open_ledger_grace_ms / 1000
        return now_s >= pending.due_s

    def _later(self, ledger_id: LedgerId) -> None:
        now_s = asyncio.get_running_loop().time()
        pending = self._pending.setdefault(ledger_id, _Pending(now_s))
        delay_ms = min(self._config.retry_min_ms << pending.failures, self._config.retry_max_ms)
        pending.failures = min(pending.failures + 1, 32)
        pending.due_s = now_s + delay_ms / 1000

    async def _give_back(self, ledger_id: LedgerId) -> None:
        try:
            await self._tree.unlock(ledger_id)
        except MetadataError:
            self._later(ledger_id)
            raise
        self._pending.pop(ledger_id, None)

    def _shuffled(self, ledgers: list[LedgerId]) -> list[LedgerId]:
        """Return them in random order: workers meet at fewer locks."""
        pool = list(ledgers)
        for at in range(len(pool) - 1, 0, -1):
            other = self._rng.randrange(at + 1)
            pool[at], pool[other] = pool[other], pool[at]
        return pool

    def _pause_s(self) -> float:
        """Return how long until something may be due."""
        now_s = asyncio.get_running_loop().time()
        dues = [pending.due_s - now_s for pending in self._pending.values()]
        return max(min([self._config.poll_ms / 1000, *dues]), 0.001)
