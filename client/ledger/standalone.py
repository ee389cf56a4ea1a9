"""The one-line way to a cluster, for programs that do nothing but use ledgers.

    async with connect("127.0.0.1:2181") as ledgers:
        writer = await ledgers.create()

Covers bringing the real metadata store, clock and randomness together with a ledger client.
Programs that have a metadata store of their own make a `LedgerClient`.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.metadata.zookeeper import SESSION_TIMEOUT_MS, ZooKeeperStore
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity


class WallClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000


@asynccontextmanager
async def connect(
    zookeeper: str | Sequence[str],
    *,
    config: LedgerClientConfig | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    security: ClusterSecurity = OPEN_CLUSTER,
) -> AsyncIterator[LedgerClient]:
    """Give access to the ledgers of the cluster that these ZooKeeper servers know.

    `zookeeper`: `host:port` of each server, in a sequence or with commas between. At the end
    writers that were not closed are abandoned. `security`: how ZooKeeper and bookies are reached.
    Raises ConfigError for a malformed address,
    MetadataError when no server answers, NoNode when there is no cluster.
    """
    store = ZooKeeperStore(zookeeper, session_timeout_ms=session_timeout_ms, security=security)
    await store.start()
    try:
        client = LedgerClient(
            store, rng=random.SystemRandom(), clock=WallClock(), config=config, bookies=security
        )
        async with client:
            yield client
    finally:
        await store.close()
