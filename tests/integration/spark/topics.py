"""Topics for the Spark tests: made, filled and listed without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from confluent_kafka import Producer

from client.pubsub import TopicAdmin
from tests.integration.cluster import LocalCluster


def create(
    cluster: LocalCluster,
    name: str,
    *,
    partition_count: int = 1,
    configs: Mapping[str, str] | None = None,
) -> str:
    """Create a topic and return its name."""

    async def work() -> None:
        async with TopicAdmin(cluster.bootstrap_servers) as topics:
            await topics.create(name, partition_count=partition_count, configs=configs or {})

    asyncio.run(work())
    return name


def publish(
    cluster: LocalCluster, topic: str, values: Iterable[bytes], *, partition: int = 0,
    batch_records: int = 100, codec: str = "none",
) -> None:  # fmt: skip
    """Publish values in order, in batches of about `batch_records`; all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": batch_records,
            "linger.ms": 5,
            "compression.type": codec,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    failures: list[object] = []

    def on_done(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(values):
        producer.produce(
            topic, value, key=b"k%d" % (number % 7), partition=partition, on_delivery=on_done
        )
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []
