"""The auditor: finds ledgers that lack copies and marks them for the workers.

Covers its three tasks: mark what lost bookies held (when is decided by `core/lost_bookies.py`),
mark it all again from time to time, and compare every ledger with what its bookies hold. All of
them rest while auto recovery is switched off. Lists of bookies are read afresh for every look. A
task that fails is due again at once.

Source: Apache BookKeeper `Auditor`, `AuditorBookieCheckTask`, `AuditorCheckAllLedgersTask`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection

from client.autorecovery.census import Census
from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.core.lost_bookies import LostBookies
from client.autorecovery.core.repair import writer_left
from client.autorecovery.ledger_checker import LedgerChecker
from client.autorecovery.metrics import RecoveryStats
from client.autorecovery.switches import Delay
from client.autorecovery.tree import ReplicationTree
from client.errors import LedgerError, MetadataCorrupt, MetadataError, NoSuchLedger
from client.ids import BookieId, Clock, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.recoveries import unlock
from client.ledger.under_replication import mark_under_replicated
from client.metadata.store import MetadataStore
from client.node import background

log = logging.getLogger(__name__)


class Auditor:
    """The work of the node that was elected; `run` while it is."""

    def __init__(
        self,
        store: MetadataStore,
        tree: ReplicationTree,
        client: LedgerClient,
        config: AutoRecoveryConfig,
        clock: Clock,
        root: str,
        stats: RecoveryStats | None = None,
    ) -> None:
        """`stats`: where to count."""
        self._stats = stats or RecoveryStats()
        self._store = store
        self._tree = tree
        self._client = client
        self._nodes = client.context.nodes
        self._census = Census(client.context.bookies)
        self._config = config
        self._clock = clock
        self._root = root
        self._lost = LostBookies(config.start_grace_ms / 1000)
        self._delay: Delay | None = None
        self._audited_s: float | None = None
        self._checked_ms: int | None = None
        """When this one checked all ledgers last."""
        self._has_looked = False
        self._owes_audit = False
        """Whether an operator's wish is not fulfilled yet."""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        checking: asyncio.Task[None] | None = None
        try:
            while True:
                self._changed.clear()
                try:
                    if not await self._tree.switches.is_disabled(self._changed.set):
                        await self.audit_bookies()
                        loop = asyncio.get_running_loop()
                        is_checking = checking is not None and not checking.done()
                        may_check = not is_checking and not self._lost.may_still_come(loop.time())
                        if may_check and await self._is_check_due():
                            checking = background.keep(self._try_check, "ledger-check")
                except (MetadataError, LedgerError) as error:
                    log.warning("auditor.failed error=%r", error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._config.poll_ms / 1000):
                        await self._changed.wait()
        finally:
            if checking is not None:
                checking.cancel()

    async def audit_bookies(self) -> None:
        """Mark the ledgers of lost bookies, if it is time to. Raises MetadataError."""
        if await self._is_asked():
            self._owes_audit = True
        ever = await self._tree.bookies_ever()
        now = await self._tree.bookies_now(self._changed.set)
        lost = tuple(bookie for bookie in ever if bookie not in now)
        self._stats.lost_bookies = len(lost)
        now_s = asyncio.get_running_loop().time()
        delay_s = self._config.lost_bookie_delay_ms / 1000
        if self._delay is not None:
            delay_s = self._delay.seconds
        due = self._lost.look(lost, delay_s, now_s)
        if self._owes_audit or self._is_periodic_due(now_s):
            due = lost
        elif not due:
            return
        if due:
            await self._mark_ledgers_of(due)
            self._lost.on_marked(due)
        self._owes_audit = False
        self._audited_s = now_s

    async def check_ledgers(self) -> None:
        """Compare every ledger with what its bookies hold; mark what lacks something."""
        count = 0
        async for ledger_id in self._nodes.ids():
            if await self._tree.switches.is_disabled():
                return
            try:
                count += await self._check(ledger_id)
            except NoSuchLedger:
                continue
            except LedgerError as error:
                log.warning("auditor.check_failed ledger=%d error=%r", ledger_id, error)
        self._checked_ms = self._clock.now_ms()
        await self._tree.set_checked_ms(self._checked_ms)
        self._stats.checks += 1
        log.info("auditor.checked marked=%d", count)

    async def _is_asked(self) -> bool:
        """Whether an operator asked for an audit: a delay written again, or taken away."""
        known = self._delay
        self._delay = await self._tree.switches.delay(self._changed.set)
        if not self._has_looked:
            self._has_looked = True
            return False
        if self._delay is None or self._delay == known:
            return False
        return known is None or self._delay.seconds in (0.0, known.seconds)

    def _is_periodic_due(self, now_s: float) -> bool:
        if self._audited_s is None:
            self._audited_s = now_s
        interval_s = self._config.bookie_check_interval_ms / 1000
        return interval_s > 0 and now_s >= self._audited_s + interval_s

    async def _mark_ledgers_of(self, lost: Collection[BookieId]) -> None:
        count = 0
        async for ledger_id in self._nodes.ids():
            try:
                metadata = (await self._nodes.read(ledger_id)).metadata
                members = {each for fragment in metadata.fragments for each in fragment.ensemble}
                missing = [bookie for bookie in lost if bookie in members]
                if missing:
                    await self._mark(ledger_id, missing)
                    count += 1
            except NoSuchLedger:
                continue
            except LedgerError as error:
                # Its metadata, or its mark, which stays as it is: the ledger is marked already.
                log.error("auditor.unreadable ledger=%d error=%r", ledger_id, error)
        self._stats.audits += 1
        log.info("auditor.audited lost=%s marked=%d", ",".join(lost), count)

    async def _is_check_due(self) -> bool:
        interval_ms = self._config.ledger_check_interval_ms
        if not interval_ms:
            return False
        try:
            checked_ms = await self._tree.checked_ms()
        except MetadataCorrupt:
            checked_ms = self._checked_ms  # it is named, and stays; we go by our own account
        return checked_ms is None or self._clock.now_ms() >= checked_ms + interval_ms

    async def _try_check(self) -> None:
        """Check all ledgers, beside the audits: it takes long, and lost bookies cannot wait."""
        try:
            await self.check_ledgers()
        except (MetadataError, LedgerError) as error:
            log.warning("auditor.check_interrupted error=%r", error)

    async def _check(self, ledger_id: LedgerId) -> bool:
        """Mark a ledger if it lacks copies; return whether it does."""
        metadata = (await self._nodes.read(ledger_id)).metadata
        codec, _ = unlock(ledger_id, metadata, None)
        bookies = self._client.context.bookies
        found = await LedgerChecker(self._census, codec, metadata).run()
        missing = list(found.bookies)
        registered = [*bookies.writable, *bookies.readonly]
        if writer_left(metadata, registered):
            ensemble = metadata.last_fragment.ensemble
            missing += [bookie for bookie in ensemble if bookie not in registered]
        if missing:
            await self._mark(ledger_id, missing)
        return bool(missing)

    async def _mark(self, ledger_id: LedgerId, missing: Collection[BookieId]) -> None:
        self._stats.marked_ledgers += 1
        await mark_under_replicated(
            self._store, ledger_id, list(missing), now_ms=self._clock.now_ms(), root=self._root
        )
