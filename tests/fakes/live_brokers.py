"""Whole brokers in this process, on real sockets: only ledgers and metadata are in memory.

For tests with clients that nobody here wrote. Blocking clients run in threads (`in_thread`)
while the brokers run in the test's loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from broker.app import Broker
from broker.config import BrokerConfig
from broker.coordinator.runtime import Phase
from broker.errors import BrokerError
from broker.groups.coordinator import Coordinator
from broker.groups.core.group_types import GroupDescription
from client.ids import BookieId, BrokerId
from client.metadata import paths
from client.metadata.memory import MemoryCluster
from tests.fakes.ledgers import FakeLedgers

T = TypeVar("T")


class WallClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class LiveBrokers:
    """A cluster of brokers; an asynchronous context manager."""

    def __init__(self, count: int = 2, **config: Any) -> None:
        self.brokers: list[Broker] = []
        self._count = count
        self._config = {
            "admin_port": -1,
            "port": 0,
            "offsets_topic_partitions": 4,
            "num_partitions": 4,
            "group_initial_rebalance_delay_ms": 100,
            "group_session_timeout_min_ms": 1_000,
            **config,
        }
        self._tree = MemoryCluster()
        self._ledgers = FakeLedgers()

    async def __aenter__(self) -> LiveBrokers:
        admin = self._tree.session()
        for number in range(3):
            await admin.create(paths.cookie(BookieId(f"b{number}")), make_parents=True)
        for number in range(self._count):
            await self.add(BrokerId(number + 1))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(broker.close() for broker in self.brokers))

    async def add(self, broker_id: BrokerId) -> Broker:
        """Start one more broker."""
        broker = Broker(
            BrokerConfig(node_id=broker_id, **self._config),
            store=self._tree.session(),
            ledgers=self._ledgers.client(f"broker {broker_id}"),
            clock=WallClock(),
            rng=random.Random(int(broker_id)),
        )
        await broker.start()
        self.brokers.append(broker)
        return broker

    async def remove(self, broker: Broker) -> None:
        """Shut a broker down."""
        self.brokers.remove(broker)
        await broker.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def coordinator(self, group_id: str) -> tuple[Broker, Coordinator] | None:
        """Return who coordinates a group at this moment, if anybody."""
        for broker in self.brokers:
            try:
                coordinator = broker.groups.coordinator(group_id)
            except BrokerError:
                continue
            if coordinator.phase is Phase.ACTIVE:
                return broker, coordinator
        return None

    def group(self, group_id: str) -> GroupDescription | None:
        """Describe a group as its coordinator sees it."""
        found = self.coordinator(group_id)
        return None if found is None else found[1].last_view.describe(group_id)

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
        """Wait for something to come true."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
            await asyncio.sleep(0.02)


async def in_thread(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run a blocking client call beside the brokers."""
    return await asyncio.to_thread(call, *args, **kwargs)
