"""Topics of a system under test: made with three copies, deleted, who leads them, first records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from itertools import cycle
from typing import Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ops.bench.login import properties_of
from ops.bench.peers.system import REPLICAS, PeerError

_TIMEOUT_S: Final = 120.0
_MANY_TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.1
_PRODUCERS: Final = 16
"""That write to many partitions. librdkafka has one partition in a request, and Kafka answers a
connection's requests one by one, each when all replicas have it: one producer needs minutes."""


async def create(
    servers: str,
    topic: str,
    partitions: int,
    configs: Mapping[str, str] | None = None,
    properties: str = "",
) -> None:
    """Make a topic and wait until every partition has a leader. Raises PeerError.

    `properties`: a file with what else a client needs, to log in for instance.
    """
    connection = {"bootstrap.servers": servers, **properties_of(properties)}
    await asyncio.to_thread(_create_all, connection, {topic: partitions}, configs or {})


async def create_all(servers: str, wanted: Mapping[str, int]) -> None:
    """Make topics of this many partitions each; wait until all have leaders. Raises PeerError."""
    await asyncio.to_thread(_create_all, {"bootstrap.servers": servers}, wanted, {})


def _create_all(
    connection: Mapping[str, str], wanted: Mapping[str, int], configs: Mapping[str, str]
) -> None:
    admin = AdminClient(dict(connection))
    for topic, partitions in wanted.items():
        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=REPLICAS, config=dict(configs)
        )
        admin.create_topics([new], request_timeout=_MANY_TIMEOUT_S)[topic].result(_MANY_TIMEOUT_S)
    deadline_s = time.monotonic() + _MANY_TIMEOUT_S
    for topic in wanted:
        while not (found := _leaders(admin, topic)) or min(found.values()) < 0:
            if time.monotonic() > deadline_s:
                raise PeerError(f"{topic} has no leaders after {_MANY_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)


async def delete_all(servers: str) -> None:
    """Delete every topic that is not internal, and wait until none is left. Raises PeerError."""
    await asyncio.to_thread(_delete_all, servers)


def _delete_all(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    deadline_s = time.monotonic() + _MANY_TIMEOUT_S
    asked: set[str] = set()
    while names := [n for n in admin.list_topics(timeout=_TIMEOUT_S).topics if n[:2] != "__"]:
        if time.monotonic() > deadline_s:
            raise PeerError(f"topics are still there {_MANY_TIMEOUT_S:g} s after their deletion")
        if fresh := [name for name in names if name not in asked]:
            for deleted in admin.delete_topics(fresh, request_timeout=_MANY_TIMEOUT_S).values():
                deleted.result(_MANY_TIMEOUT_S)
            asked.update(fresh)
        time.sleep(_POLL_S)


async def write_to_all(servers: str, wanted: Mapping[str, int]) -> float:
    """Produce a record to each partition; return the seconds until all are acknowledged.

    Raises PeerError when one is not.
    """
    return await asyncio.to_thread(_write_to_all, servers, wanted)


def _write_to_all(servers: str, wanted: Mapping[str, int]) -> float:
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    began_s = time.monotonic()
    producers = [
        Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "message.timeout.ms": round(_MANY_TIMEOUT_S * 1e3),
            }
        )
        for _ in range(min(_PRODUCERS, sum(wanted.values())))
    ]
    turns = cycle(producers)
    for topic, partitions in wanted.items():
        for partition in range(partitions):
            producer = next(turns)
            producer.produce(topic, b"x" * 100, partition=partition, on_delivery=on_delivery)
    left = 0
    for producer in producers:
        timeout_s = _MANY_TIMEOUT_S - (time.monotonic() - began_s)
        left += producer.flush(max(timeout_s, 0))
    if left or failed:
        raise PeerError(f"{left or len(failed)} records were not taken: {failed[:1]}")
    return time.monotonic() - began_s


async def leaders(servers: str, topic: str) -> dict[int, int]:
    """Return the broker that leads each partition; -1 for none."""
    return await asyncio.to_thread(_leaders, AdminClient({"bootstrap.servers": servers}), topic)


def _leaders(admin: AdminClient, topic: str) -> dict[int, int]:
    partitions = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
    return {number: partition.leader for number, partition in partitions.items()}
