"""Requests that many tests send, in one line each."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.app import Broker
from broker.partition.partition import Partition
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.broker import until
from tests.fakes.wire_client import WireClient

NOW_MS = 1_700_000_000_000


async def create_topic(broker: Broker, name: str = "t", **settings: Any) -> Partition:
    """Create a topic and wait until all its partitions are led; return the first one."""
    topic = await broker.topics.create(name, **settings)
    await until(
        lambda: all(
            broker.partitions.find(name, index) is not None
            for index in range(topic.partition_count)
        )
    )
    partition = broker.partitions.find(name, 0)
    assert partition is not None
    return partition


def batch(*values: bytes, **fields: Any) -> bytes:
    """Build a batch of records with these values and the current fake time."""
    return build_batch([Record(b"k", value, NOW_MS) for value in values], **fields)


def produce_fields(
    records: bytes | None, *, topic: str = "t", partition: int = 0, acks: int = -1, **more: Any
) -> dict[str, Any]:
    """Return the fields of a Produce request for one partition; `topic_id`: from version 13 on."""
    named = {"topic_id": more["topic_id"]} if "topic_id" in more else {"name": topic}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": more.get("timeout_ms", 5_000),
        "topic_data": [{**named, "partition_data": [{"index": partition, "records": records}]}],
    }


async def produce(
    client: WireClient, records: bytes | None, *, version: int = 9, **fields: Any
) -> Any:
    """Produce to one partition; return its part of the answer."""
    answer = await client.call(ApiKey.PRODUCE, version, **produce_fields(records, **fields))
    return answer.responses[0].partition_responses[0]


def fetch_fields(
    offset: int, *, topic: str = "t", partition: int = 0, **more: Any
) -> dict[str, Any]:
    """Return the fields of a Fetch request for one partition; `topic_id`: from version 13 on."""
    named = {"topic_id": more["topic_id"]} if "topic_id" in more else {"topic": topic}
    return {
        "replica_id": -1,
        "max_wait": more.get("wait_ms", 0),
        "min_bytes": more.get("bytes_min", 1),
        "max_bytes": more.get("bytes_max", 1 << 20),
        "isolation_level": more.get("isolation", 0),
        "session_id": more.get("session_id", 0),
        "session_epoch": more.get("session_epoch", -1),
        "topics": [
            {
                **named,
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": more.get("leader_epoch", -1),
                        "fetch_offset": offset,
                        "partition_max_bytes": more.get("partition_bytes_max", 1 << 20),
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": more.get("rack", ""),
    }


async def fetch(client: WireClient, offset: int, *, version: int = 12, **fields: Any) -> Any:
    """Fetch from one partition; return its part of the answer."""
    answer = await client.call(ApiKey.FETCH, version, **fetch_fields(offset, **fields))
    return answer.responses[0].partitions[0]


async def breathe() -> None:
    """Let everything that is ready happen."""
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
