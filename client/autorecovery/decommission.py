"""A bookie leaves for good: wait until auto recovery has replaced its copies, or copy them now.

Either way the bookie is stopped first: one that is registered would take new entries meanwhile.
Its cookie goes last, when no ledger names it; until then the auditor sees it as lost. A server that
lags may not show yet that it runs, or a ledger that names it: each look begins with a sync.

Source: Apache BookKeeper `DecommissionBookieCommand`, `BookKeeperAdmin`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from client.autorecovery.core.repair import ReplicationResult
from client.autorecovery.fragment_replicator import FragmentReplicator
from client.autorecovery.tree import ReplicationTree
from client.errors import IncorrectParameter, LedgerError, NoNode, NoSuchLedger
from client.ids import BookieId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.under_replication import read_mark
from client.metadata import paths
from client.metadata.store import MetadataStore

log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """What became of a lost bookie's ledgers."""

    repaired: tuple[LedgerId, ...]
    lacking: tuple[LedgerId, ...]
    """Those that could not be copied: try again later."""


class Decommission:
    """The end of one bookie."""

    def __init__(
        self,
        store: MetadataStore,
        tree: ReplicationTree,
        client: LedgerClient,
        bookie: BookieId,
        root: str,
    ) -> None:
        self._store = store
        self._tree = tree
        self._client = client
        self._bookie = bookie
        self._root = root

    async def decommission(self, poll_s: float, on_waiting: Callable[[int], None]) -> None:
        """Have auto recovery copy everything the bookie held, then forget the bookie.

        `on_waiting` hears how many ledgers still name it. Returns when there are none; may take
        for ever if some cannot be repaired. Raises IncorrectParameter if the bookie runs or is
        unknown, or auto recovery is off.
        """
        await self._check_stopped()
        if self._bookie not in await self._tree.bookies_ever():
            raise IncorrectParameter(
                f"bookie {self._bookie} has no cookie: it never belonged to this cluster, or was"
                " removed from it"
            )
        if await self._tree.switches.is_disabled():
            raise IncorrectParameter("auto recovery is switched off: nobody would copy anything")
        await self._tree.switches.trigger()
        while left := [ledger_id async for ledger_id in self._unfinished()]:
            on_waiting(len(left))
            await asyncio.sleep(poll_s)
        await self._check_stopped()
        with contextlib.suppress(NoNode):
            await self._store.delete(paths.cookie(self._bookie, self._root))
        log.info("bookie.decommissioned bookie=%s", self._bookie)

    async def recover(self, replicator: FragmentReplicator) -> Recovered:
        """Copy everything the bookie held, here and now, without marks.

        Open ledgers that it is a member of are closed first, which fences their writers. Raises
        IncorrectParameter if the bookie runs.
        """
        await self._check_stopped()
        repaired: list[LedgerId] = []
        lacking: list[LedgerId] = []
        for ledger_id in [ledger_id async for ledger_id in self._ledgers()]:
            is_whole = await self._replicate(replicator, ledger_id)
            (repaired if is_whole else lacking).append(ledger_id)
        return Recovered(tuple(repaired), tuple(lacking))

    async def _replicate(self, replicator: FragmentReplicator, ledger_id: LedgerId) -> bool:
        try:
            outcome = await replicator.replicate(ledger_id)
            if outcome is ReplicationResult.WRITER_LEFT:
                await replicator.close(ledger_id)
                outcome = await replicator.replicate(ledger_id)
        except NoSuchLedger:
            return True
        except LedgerError as error:
            log.warning("autorecovery.failed ledger=%d error=%r", ledger_id, error)
            return False
        return outcome is ReplicationResult.WHOLE

    async def _check_stopped(self) -> None:
        await self._store.sync(self._root)
        if self._bookie in await self._tree.bookies_now():
            raise IncorrectParameter(f"bookie {self._bookie} is running: stop it first")

    async def _ledgers(self) -> AsyncIterator[LedgerId]:
        """Yield the ledgers that name the bookie."""
        async for ledger_id in self._client.ledgers():
            try:
                metadata = await self._client.describe(ledger_id)
            except NoSuchLedger:
                continue
            if any(self._bookie in fragment.ensemble for fragment in metadata.fragments):
                yield ledger_id

    async def _unfinished(self) -> AsyncIterator[LedgerId]:
        """Yield the ledgers that name the bookie, or that are marked for its sake."""
        await self._store.sync(self._root)
        async for ledger_id in self._ledgers():
            yield ledger_id
        for ledger_id in await self._tree.marked_ledgers():
            mark = await read_mark(self._store, ledger_id, root=self._root)
            if mark is not None and self._bookie in mark.bookies:
                yield ledger_id
