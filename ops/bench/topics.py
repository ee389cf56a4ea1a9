"""Topics of a system under test: made with three copies, and who leads them."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ops.bench.peers.system import REPLICAS, PeerError

_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.1


async def create(servers: str, topic: str, partitions: int) -> None:
    """Make a topic and wait until every partition has a leader. Raises PeerError."""
    await asyncio.to_thread(_create, servers, topic, partitions)


def _create(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=REPLICAS)
    admin.create_topics([new], request_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not (found := _leaders(admin, topic)) or min(found.values()) < 0:
        if time.monotonic() > deadline_s:
            raise PeerError(f"{topic} has no leaders after {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


async def leaders(servers: str, topic: str) -> dict[int, int]:
    """Return the broker that leads each partition; -1 for none."""
    return await asyncio.to_thread(_leaders, AdminClient({"bootstrap.servers": servers}), topic)


def _leaders(admin: AdminClient, topic: str) -> dict[int, int]:
    partitions = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
    return {number: partition.leader for number, partition in partitions.items()}
