"""More than the bookies can take: clients wait, and nobody is failed for being busy.

All settings are the defaults. What is proved is that nothing is lost, stored twice or stored in
another order than it was sent in, that whoever led goes on leading, and that nobody waits for
longer than the bookies did.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode

from client.pubsub import TopicAdmin
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.wire_client import WireClient
from tests.integration.cluster import LocalCluster

BOOKIES = ("bookie-0", "bookie-1", "bookie-2")
STOPPED_S = 3.0
SLACK_S = 5.0
"""What a pause may last beyond that: the machine writes 200 MB three times, and others use it."""


async def create(cluster: LocalCluster, topic: str) -> None:
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create(topic, partition_count=1)


def port_of(cluster: LocalCluster) -> int:
    return int(cluster.bootstrap_servers.rpartition(":")[2])


async def leader_epoch(cluster: LocalCluster, topic: str) -> int:
    """Ask for the epoch of the topic's only partition; it grows with every opening."""
    client = await WireClient.connect(port_of(cluster))
    fields = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
    while True:
        answer = await client.call(ApiKey.METADATA, 9, **fields)
        (partition,) = answer.topics[0].partitions
        if partition.error_code is ErrorCode.none and partition.leader_epoch >= 0:
            await client.close()
            return int(partition.leader_epoch)
        await asyncio.sleep(0.05)


def assert_nobody_failed(cluster: LocalCluster) -> None:
    log = cluster.node_log("broker-0")
    for event in ("ledger.writer_failed", "partition.ended", "ledger.recover"):
        assert event not in log, log


@pytest.mark.timeout(180)
async def test_three_bookies_stop_for_a_moment_under_load(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = start_cluster(brokers=1)
    await create(cluster, "stopped")
    epoch = await leader_epoch(cluster, "stopped")
    clients = [await WireClient.connect(port_of(cluster)) for _ in range(2)]
    for client in clients:
        assert (await produce(client, 0)).error_code is ErrorCode.none

    async def answers(client: WireClient) -> list[tuple[float, Any]]:
        found = []
        for _ in range(100):
            answer = await client.receive(60)
            found.append((time.monotonic(), answer.responses[0].partition_responses[0]))
        return found

    # Made before the bookies stop: that takes the longest here.
    frames = [[request(client, number) for number in range(1, 101)] for client in clients]
    pids = [cluster.kill(name, signal.SIGSTOP) for name in BOOKIES]
    try:
        stopped_s = time.monotonic()
        for client, requests in zip(clients, frames, strict=True):
            for each in requests:
                client.send_raw(each)
        reading = [asyncio.ensure_future(answers(client)) for client in clients]
        await asyncio.sleep(stopped_s + STOPPED_S - time.monotonic())
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    resumed_s = time.monotonic()
    told = await asyncio.gather(*reading)

    assert {row.error_code for rows in told for _, row in rows} == {ErrorCode.none}
    for rows in told:
        offsets = [row.base_offset for _, row in rows]
        assert offsets == sorted(offsets), "in the order in which the connection sent them"
    assert sorted(row.base_offset for rows in told for _, row in rows) == list(range(2, 202))
    moments = sorted(at_s for rows in told for at_s, _ in rows)
    assert moments[0] - resumed_s < SLACK_S
    assert max(b - a for a, b in itertools.pairwise(moments)) < SLACK_S
    assert await leader_epoch(cluster, "stopped") == epoch
    assert_nobody_failed(cluster)
    for client in clients:
        await client.close()


def request(client: WireClient, number: int) -> bytes:
    """Make a Produce request of 1 MB."""
    value = number.to_bytes(4) * 250_000
    records = build_batch([Record(b"k", value, time.time_ns() // 1_000_000)])
    topic = {"name": "stopped", "partition_data": [{"index": 0, "records": records}]}
    fields = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": [topic]}
    return client.frame(ApiKey.PRODUCE, 9, fields)


async def produce(client: WireClient, number: int) -> Any:
    client.send_raw(request(client, number))
    return (await client.receive(30)).responses[0].partition_responses[0]


@pytest.mark.timeout(300)
async def test_a_fast_producer_without_idempotence_is_only_slowed_down(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = start_cluster(brokers=1)
    await create(cluster, "fast")
    epoch = await leader_epoch(cluster, "fast")
    await asyncio.to_thread(produce_fast, cluster.bootstrap_servers)
    assert await leader_epoch(cluster, "fast") == epoch
    assert_nobody_failed(cluster)
    stored = await asyncio.to_thread(read_numbers, cluster.bootstrap_servers)
    assert stored == list(range(1_000)), "each once, in order"


def produce_fast(servers: str) -> None:
    """Send 1,000 records of 500 kB as fast as librdkafka takes them."""
    errors: list[object] = []
    acknowledged: list[int] = []

    def on_delivery(error: object, message: Any) -> None:
        if error is None:
            acknowledged.append(message.offset())
        else:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": False,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    padding = os.urandom(499_996)
    for number in range(1_000):
        producer.produce("fast", number.to_bytes(4) + padding, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(200) == 0
    assert errors == []
    assert len(set(acknowledged)) == 1_000


def read_numbers(servers: str) -> list[int]:
    """Read the whole topic; return what number each record has."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        end = consumer.get_watermark_offsets(TopicPartition("fast", 0), timeout=30)[1]
        consumer.assign([TopicPartition("fast", 0, 0)])
        found: list[int] = []
        while len(found) < end:
            for message in consumer.consume(100, timeout=30):
                assert message.error() is None
                found.append(int.from_bytes(message.value()[:4]))
        return found
    finally:
        consumer.close()
