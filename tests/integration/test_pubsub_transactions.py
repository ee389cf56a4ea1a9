"""client.pubsub's transactions against a real cluster, and the example of reading and writing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, KafkaError

from client.pubsub import Subscriber, TopicAdmin, TransactionalPublisher
from client.pubsub.errors import ProducerFenced, TransactionAborted
from tests.integration.cluster import ROOT, LocalCluster


def read(cluster: LocalCluster, topic: str, *, committed: bool = True) -> list[bytes]:
    """Return all values that librdkafka gets, up to the end of every partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.subscribe([topic])
    found: list[bytes] = []
    at_end: set[int | None] = set()
    while len(at_end) < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "no end of a partition"
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            at_end.add(message.partition())
    consumer.close()
    return found


async def create(cluster: LocalCluster, *names: str) -> None:
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        for name in names:
            await topics.create(name, partition_count=3)


@pytest.mark.smoke
async def test_what_commits_is_visible_and_nothing_else(cluster: LocalCluster) -> None:
    topic = "transactions-visible"
    await create(cluster, topic)
    async with TransactionalPublisher("visible", cluster.bootstrap_servers) as publisher:
        async with publisher.transaction():
            for number in range(500):
                await publisher.enqueue(topic, b"%d" % number, key=b"%d" % number)
        with pytest.raises(KeyError):
            async with publisher.transaction():
                for number in range(500, 700):
                    await publisher.enqueue(topic, b"%d" % number, key=b"%d" % number)
                    await asyncio.sleep(0)
                raise KeyError
        async with publisher.transaction():
            await publisher.enqueue(topic, b"700")
        await publisher.begin()
        await publisher.enqueue(topic, b"open")
        await asyncio.sleep(0.1)
        values = await asyncio.to_thread(read, cluster, topic)
        assert sorted(map(int, values)) == [*range(500), 700]
        command = [sys.executable, "-m", "ops.cli.main", "consume", topic, "--from-beginning"]
        command += ["--isolation-level", "read_committed", "--max", "501"]
        command += ["-b", cluster.bootstrap_servers]
        shown = await asyncio.to_thread(
            subprocess.run, command, cwd=ROOT, capture_output=True, timeout=60, check=False
        )
        assert sorted(map(int, shown.stdout.split())) == [*range(500), 700], shown.stderr


async def test_a_refused_record_takes_its_transaction_with_it(cluster: LocalCluster) -> None:
    topic = "transactions-refused"
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create(topic, partition_count=1, configs={"max.message.bytes": "2000"})
    async with TransactionalPublisher("refused", cluster.bootstrap_servers) as publisher:
        with pytest.raises(TransactionAborted, match="MESSAGE_TOO_LARGE"):
            async with publisher.transaction():
                await publisher.enqueue(topic, b"small")
                await asyncio.sleep(0.1)
                await publisher.enqueue(topic, b"x" * 5000)
        async with publisher.transaction():
            await publisher.enqueue(topic, b"next")
    assert await asyncio.to_thread(read, cluster, topic) == [b"next"]


async def test_a_second_publisher_takes_over(cluster: LocalCluster) -> None:
    topic = "transactions-fenced"
    await create(cluster, topic)
    async with TransactionalPublisher("fenced", cluster.bootstrap_servers) as first:
        await first.begin()
        await first.enqueue(topic, b"of the first")
        await asyncio.sleep(0.1)
        second = TransactionalPublisher("fenced", cluster.bootstrap_servers)
        async with second, second.transaction():
            await second.enqueue(topic, b"of the second")
        with pytest.raises((ProducerFenced, TransactionAborted)):
            await first.commit()
        with pytest.raises(ProducerFenced, match="took over"):
            await first.abort()
    assert await asyncio.to_thread(read, cluster, topic) == [b"of the second"]


async def test_positions_move_with_the_transaction(cluster: LocalCluster) -> None:
    source, target = "transactions-source", "transactions-target"
    await create(cluster, source, target)
    servers = cluster.bootstrap_servers
    async with TransactionalPublisher("positions", servers) as publisher:
        async with publisher.transaction():
            for number in range(300):
                await publisher.enqueue(source, b"%d" % number, key=b"%d" % number)
        fails = True
        copied = 0
        async with Subscriber(
            source, bootstrap_servers=servers, group="copies", isolation_level="read_committed"
        ) as subscriber:
            while copied < 300:
                records = await subscriber.next_batch(timeout_ms=1000, records_max=100)
                try:
                    async with publisher.transaction():
                        for record in records:
                            await publisher.enqueue(target, record.value, key=record.key)
                        await publisher.send_offsets(subscriber.positions())
                        if records and fails:
                            fails = False
                            raise KeyError
                except KeyError:
                    await subscriber.rewind()
                    continue
                copied += len(records)
    values = await asyncio.to_thread(read, cluster, target)
    assert sorted(map(int, values)) == list(range(300))


def test_the_example_bills_each_order_once(cluster: LocalCluster) -> None:
    def run() -> str:
        done = subprocess.run(
            [sys.executable, "examples/read_process_write.py"],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "QUIRE_BOOTSTRAP": cluster.bootstrap_servers,
                "QUIRE_TOPIC": "transactions-orders",
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    assert run() == "billed 100 orders"
    assert run() == "billed 100 orders"
    assert len(read(cluster, "transactions-orders-bills")) == 200
