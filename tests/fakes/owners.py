"""Who leads a partition in a world, and whose its owner node is."""

from __future__ import annotations

import asyncio

from broker.cluster.core.topology import TopicInfo
from broker.cluster.owner_node import Owner, decode_owner
from broker.partition.opening import FirstSteps
from client.metadata import paths
from tests.fakes.brokers import Broker, World
from tests.fakes.ledgers import FakeLedgers

STEPS = FirstSteps(FakeLedgers().client())
"""Of a claim of which nothing but the node counts."""


async def leader_of(world: World, topic: TopicInfo, index: int = 0) -> Broker:
    """Wait until all live brokers know each other, and the one they want leads the partition."""
    while True:
        live = [broker for broker in world.brokers if not broker.dead]
        agreed = all(list(one.cluster.brokers) == [each.id for each in live] for one in live)
        wanted = live[0].cluster.preferred_leader(topic, index)
        for broker in live:
            led = broker.partitions.find(topic.name, index) is not None
            if agreed and led and broker.id == wanted:
                return broker
        await asyncio.sleep(0.01)


def owner(world: World, topic: TopicInfo, index: int = 0) -> Owner | None:
    return decode_owner(world.cluster.tree.get(owner_path(topic, index)).data)


def owner_path(topic: TopicInfo, index: int) -> str:
    return paths.partition_owner(topic.id_text, index)


def other(world: World, broker: Broker) -> Broker:
    return next(one for one in world.brokers if one is not broker and not one.dead)
