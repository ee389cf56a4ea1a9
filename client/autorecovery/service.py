"""A node of auto recovery: a worker always, the auditor while elected.

Covers putting the two together. It needs nothing but the metadata store and the ledger protocol,
so it runs inside a bookie or alone, beside Apache BookKeeper's own.

Source: Apache BookKeeper `AutoRecoveryMain`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from client.autorecovery.auditor import Auditor
from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.election import Election
from client.autorecovery.fragment_replicator import FragmentReplicator
from client.autorecovery.metrics import TABLE, RecoveryStats, provide_recovery
from client.autorecovery.tree import ReplicationTree
from client.autorecovery.worker import Worker
from client.errors import LedgerError, MetadataError
from client.histogram import Stopwatch, loop_time
from client.ids import BookieId, Clock, Rng
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.metrics import LedgerStats, provide_ledgers
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background
from client.node.exposition import Exposition
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity

log = logging.getLogger(__name__)


class AutoRecovery:
    """One node. `start` once, `stop` once; client and store stay open."""

    def __init__(
        self,
        store: MetadataStore,
        client: LedgerClient,
        *,
        me: BookieId,
        clock: Clock,
        rng: Rng,
        config: AutoRecoveryConfig | None = None,
        root: str = paths.LEDGERS_ROOT,
    ) -> None:
        """`me`: the name that votes and locks carry. `client` must be started.

        What metrics show is measured with the stopwatch of the client's numbers.
        """
        self.stats = RecoveryStats(client.stats.now_s)
        self._store = store
        self._client = client
        self._clock = clock
        self._root = root
        self._config = config or AutoRecoveryConfig()
        self.tree = ReplicationTree(store, me, root)
        self._election = Election(store, me, root)
        replicator = FragmentReplicator(
            client, batch_entries=self._config.batch_entries, stats=self.stats
        )
        self._worker = Worker(store, self.tree, replicator, self._config, rng, root, self.stats)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin. Raises MetadataError, MetadataCorrupt."""
        await self.tree.prepare()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._audit()), loop.create_task(self._worker.run())]

    def show_in(self, exposition: Exposition) -> None:
        """Let metrics read this node and its ledger client."""
        provide_recovery(exposition, self.stats)
        provide_ledgers(exposition, self._client.stats, lambda: len(self._client.writable_bookies))

    def exposition(self) -> Exposition:
        """Return the metrics of this node alone, to be shown beside those of its process."""
        made = Exposition(TABLE)
        self.show_in(made)
        return made

    async def stop(self) -> None:
        """End at once: what was begun is left for others to do again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(MetadataError):
            await self._election.resign()

    async def failed(self) -> None:
        """Return only by raising: what ended a part of it that should never end."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled() and task.exception() is not None:
                background.count_failure("autorecovery")
            task.result()

    async def _audit(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._election.won()
                self.stats.is_auditor = True
                auditor = Auditor(
                    self._store,
                    self.tree,
                    self._client,
                    self._config,
                    self._clock,
                    self._root,
                    self.stats,
                )
                working: asyncio.Future[None] = loop.create_task(auditor.run())
                losing: asyncio.Future[None] = loop.create_task(self._election.lost())
                try:
                    ends = [working, losing]
                    done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    for end in done:
                        end.result()
                finally:
                    self.stats.is_auditor, self.stats.lost_bookies = False, 0
                    working.cancel()
                    losing.cancel()
                    await asyncio.gather(working, losing, return_exceptions=True)
            except (MetadataError, LedgerError) as error:
                log.warning("auditor.interrupted error=%r", error)
                await asyncio.sleep(self._config.poll_ms / 1000)


@asynccontextmanager
async def running(
    store: MetadataStore,
    *,
    me: BookieId,
    clock: Clock,
    rng: Rng,
    config: AutoRecoveryConfig | None = None,
    root: str = paths.LEDGERS_ROOT,
    now_s: Stopwatch = loop_time,
    security: ClusterSecurity = OPEN_CLUSTER,
) -> AsyncIterator[AutoRecovery]:
    """Run a node with a ledger client of its own. Raises MetadataError, MetadataCorrupt.

    `now_s` measures what metrics show; nothing is decided by it.
    """
    ledgers = LedgerClientConfig(ledgers_root=root)
    stats = LedgerStats(now_s)
    async with LedgerClient(
        store, rng=rng, clock=clock, config=ledgers, bookies=security, stats=stats
    ) as client:
        node = AutoRecovery(store, client, me=me, clock=clock, rng=rng, config=config, root=root)
        await node.start()
        try:
            yield node
        finally:
            await node.stop()
