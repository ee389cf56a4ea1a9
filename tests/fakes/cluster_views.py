"""A metadata tree, two brokers' views of it, and what changes topics through each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo
from broker.config import BrokerConfig
from broker.topics.topic_changes import TopicChanges
from broker.topics.topics import Topics
from client.ids import BookieId, BrokerId
from client.metadata import paths
from client.metadata.memory import MemoryCluster, MemoryStore
from tests.fakes.clock import FakeClock, rng

BOOKIES = 3


async def settle(done: Callable[[], bool]) -> None:
    """Let the loop run until something is true."""
    for _ in range(2000):
        if done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


def broker_info(broker_id: int) -> BrokerInfo:
    """Return a broker's registration."""
    return BrokerInfo(
        id=BrokerId(broker_id), incarnation="i", host="h", port=9092, advertised=False
    )


class ClusterViews:
    """Two brokers' views; `start` first, `close` last."""

    def __init__(self) -> None:
        self.tree = MemoryCluster()
        self.stores: list[MemoryStore] = []
        self.views: list[Cluster] = []
        self.topics: list[Topics] = []

    async def start(self) -> None:
        """Make the cookies of three bookies, and the views."""
        admin = self.tree.session()
        for number in range(BOOKIES):
            path = paths.cookie(BookieId(f"b{number}"))
            await admin.create(path, make_parents=True)
        for seed in (1, 2):
            store, random, config = self.tree.session(), rng(seed), BrokerConfig()
            view = Cluster(store, config, rng=random)
            await view.start()
            self.stores.append(store)
            self.views.append(view)
            self.topics.append(Topics(view, TopicChanges(store, FakeClock(), random), config))

    async def close(self) -> None:
        """Stop following changes."""
        for view in self.views:
            await view.close()
