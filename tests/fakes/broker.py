"""A whole broker in the test's process: real front, partitions and groups over fake ledgers.

`FakeCloud` is what brokers share (metadata tree and ledgers); `await cloud.start_broker(1)` adds
one on a free port of 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from broker.app import Broker
from broker.config import BrokerConfig
from client.ids import BookieId, BrokerId, Clock
from client.metadata import paths
from client.metadata.memory import MemoryCluster, MemoryStore
from tests.fakes.clock import FakeClock, rng
from tests.fakes.ledgers import FakeLedgers

CONFIG = BrokerConfig(
    port=0,
    admin_port=-1,
    offsets_topic_partitions=2,
    group_initial_rebalance_delay_ms=0,
    shutdown_timeout_ms=2_000,
)


class FakeCloud:
    """What the brokers of one test share."""

    def __init__(self, bookie_count: int = 3, *, clock: Clock | None = None) -> None:
        """Real clients stamp records with the wall clock: give a clock that shows it too."""
        self.tree = MemoryCluster()
        self.ledgers = FakeLedgers()
        self.clock: Clock = clock or FakeClock()
        self.brokers: dict[int, Broker] = {}
        self.stores: dict[int, MemoryStore] = {}
        self._bookie_count = bookie_count

    async def start_broker(
        self,
        node_id: int = 1,
        serve_admin: Callable[[Broker], Awaitable[str]] | None = None,
        **settings: Any,
    ) -> Broker:
        """Start a broker with `CONFIG` changed by `settings`; `serve_admin` returns a URL."""
        admin = self.tree.session()
        for number in range(self._bookie_count):
            path = paths.cookie(BookieId(f"b{number}"))
            if await admin.exists(path) is None:
                await admin.create(path, make_parents=True)
        config = dataclasses.replace(CONFIG, node_id=BrokerId(node_id), **settings)
        store = self.tree.session()
        broker = Broker(
            config,
            store=store,
            ledgers=self.ledgers.client(f"broker-{node_id}"),
            clock=self.clock,
            rng=rng(node_id),
        )
        await broker.start("" if serve_admin is None else await serve_admin(broker))
        self.stores[node_id] = store
        self.brokers[node_id] = broker
        await until(lambda: all(node_id in b.cluster.brokers for b in self.brokers.values()))
        return broker

    async def close(self) -> None:
        """Stop all brokers."""
        for broker in self.brokers.values():
            await broker.close()
        for store in self.stores.values():
            await store.close()

    @property
    def bootstrap(self) -> str:
        """Addresses for clients."""
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())


async def until(done: Callable[[], bool], patience_s: float = 5.0) -> None:
    """Wait for something that the loop will make true."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + patience_s
    while not done():
        assert loop.time() < deadline_s, "it never came true"
        await asyncio.sleep(0.001)
