"""Kafka clients that nobody here wrote, against a broker in this process.

The ledgers are fakes, everything in front of them is real: this is about what clients see.
Blocking clients run in threads of the test.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from broker.app import Broker
from tests.fakes.broker import FakeCloud
from tests.fakes.clock import WallClock

T = TypeVar("T")
COUNT = 300
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud(clock=WallClock())
    yield made
    await made.close()


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    return await cloud.start_broker(1, num_partitions=3, group_session_timeout_min_ms=1_000)


async def blocking(call: Callable[[], T]) -> T:
    async with asyncio.timeout(60):
        return await asyncio.to_thread(call)


def values() -> list[bytes]:
    return [b"value %d" % number for number in range(COUNT)]


class TestConfluent:
    """librdkafka."""

    @pytest.mark.parametrize("codec", CODECS)
    async def test_publish_and_subscribe(
        self, cloud: FakeCloud, broker: Broker, codec: str
    ) -> None:
        def publish() -> list[tuple[int, int]]:
            delivered: list[tuple[int, int]] = []
            errors: list[Any] = []

            def on_delivery(error: Any, message: Any) -> None:
                if error is not None:
                    errors.append(error)
                delivered.append((message.partition(), message.offset()))

            producer = confluent_kafka.Producer(
                {"bootstrap.servers": cloud.bootstrap, "enable.idempotence": True,
                 "compression.type": codec, "linger.ms": 1}
            )  # fmt: skip
            for value in values():
                producer.produce("t", value, key=value[-1:], on_delivery=on_delivery)
            assert producer.flush(30) == 0
            assert not errors
            return delivered

        def subscribe() -> list[bytes]:
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": cloud.bootstrap, "group.id": "g",
                 "auto.offset.reset": "earliest", "enable.auto.commit": False}
            )  # fmt: skip
            consumer.subscribe(["t"])
            received: list[bytes] = []
            while len(received) < COUNT:
                for message in consumer.consume(500, 1.0):
                    assert message.error() is None
                    received.append(message.value())
            consumer.commit(asynchronous=False)
            committed = consumer.committed(
                [confluent_kafka.TopicPartition("t", index) for index in range(3)]
            )
            assert sum(max(row.offset, 0) for row in committed) == COUNT
            consumer.close()
            return received

        delivered = await blocking(publish)
        assert len(set(delivered)) == COUNT
        assert sorted(await blocking(subscribe)) == sorted(values())

    async def test_administration(self, cloud: FakeCloud, broker: Broker) -> None:
        def administer() -> None:
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cloud.bootstrap})
            new = confluent_kafka.admin.NewTopic("made", 2, 1, config={"retention.ms": "60000"})
            admin.create_topics([new])["made"].result(10)
            assert len(admin.list_topics(timeout=10).topics["made"].partitions) == 2
            assert admin.list_topics(timeout=10).cluster_id == broker.cluster.cluster_id
            resource = confluent_kafka.admin.ConfigResource(
                confluent_kafka.admin.ConfigResource.Type.TOPIC, "made"
            )
            described = admin.describe_configs([resource])[resource].result(10)
            assert described["retention.ms"].value == "60000"
            grown = confluent_kafka.admin.NewPartitions("made", 5)
            admin.create_partitions([grown])["made"].result(10)
            admin.delete_topics(["made"])["made"].result(10)
            assert "made" not in admin.list_topics(timeout=10).topics

        await blocking(administer)

    async def test_offsets_by_time_and_watermarks(self, cloud: FakeCloud, broker: Broker) -> None:
        def check() -> None:
            producer = confluent_kafka.Producer({"bootstrap.servers": cloud.bootstrap})
            now_ms = cloud.clock.now_ms()
            for number in range(10):
                producer.produce("t", b"v", partition=0, timestamp=now_ms + number * 100)
            producer.flush(10)
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": cloud.bootstrap, "group.id": "g"}
            )
            where = confluent_kafka.TopicPartition("t", 0)
            assert consumer.get_watermark_offsets(where, timeout=10) == (0, 10)
            asked = confluent_kafka.TopicPartition("t", 0, now_ms + 450)
            (found,) = consumer.offsets_for_times([asked], timeout=10)
            assert found.offset == 5
            consumer.close()

        await blocking(check)


class TestKafkaPython:
    """kafka-python."""

    @pytest.mark.parametrize("codec", [None, "gzip"])
    async def test_publish_and_subscribe(
        self, cloud: FakeCloud, broker: Broker, codec: str | None
    ) -> None:
        def publish() -> None:
            producer = kafka.KafkaProducer(
                bootstrap_servers=cloud.bootstrap, compression_type=codec, linger_ms=1
            )
            sent = [producer.send("t", value, key=value[-1:]) for value in values()]
            for future in sent:
                future.get(timeout=30)
            producer.close()

        def subscribe() -> list[bytes]:
            consumer = kafka.KafkaConsumer(
                "t", bootstrap_servers=cloud.bootstrap, group_id="g",
                auto_offset_reset="earliest", enable_auto_commit=False,
            )  # fmt: skip
            received = [next(consumer).value for _ in range(COUNT)]
            consumer.commit()
            consumer.close()
            return received

        await blocking(publish)
        assert sorted(await blocking(subscribe)) == sorted(values())

    async def test_administration(self, cloud: FakeCloud, broker: Broker) -> None:
        def administer() -> None:
            admin = kafka.admin.KafkaAdminClient(bootstrap_servers=cloud.bootstrap)
            new = kafka.admin.NewTopic(name="made", num_partitions=2, replication_factor=1)
            admin.create_topics([new])
            assert "made" in admin.list_topics()
            with pytest.raises(kafka.errors.TopicAlreadyExistsError):
                admin.create_topics([new])
            admin.delete_topics(["made"])
            assert "made" not in admin.list_topics()
            admin.close()

        await blocking(administer)


class TestAiokafka:
    """aiokafka, which speaks the oldest versions of all."""

    @pytest.mark.parametrize("acks", [0, 1, "all"])
    async def test_publish_and_subscribe(
        self, cloud: FakeCloud, broker: Broker, acks: int | str
    ) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cloud.bootstrap, acks=acks)
        await producer.start()
        for value in values():
            await producer.send("t", value, key=value[-1:])
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=cloud.bootstrap, group_id="g", auto_offset_reset="earliest"
        )
        await consumer.start()
        received = []
        async with asyncio.timeout(60):
            while len(received) < COUNT:
                message = await consumer.getone()
                received.append(message.value)
        await consumer.commit()
        await consumer.stop()
        assert sorted(received) == sorted(values())

    async def test_a_group_shares_the_partitions(self, cloud: FakeCloud, broker: Broker) -> None:
        await broker.topics.create("t", 3)
        members = [
            AIOKafkaConsumer(
                "t", bootstrap_servers=cloud.bootstrap, group_id="g",
                auto_offset_reset="earliest", heartbeat_interval_ms=100,
            )
            for _ in range(3)
        ]  # fmt: skip
        for member in members:
            await member.start()
        async with asyncio.timeout(60):
            while sorted(len(member.assignment()) for member in members) != [1, 1, 1]:
                await asyncio.gather(*(member.getmany(timeout_ms=50) for member in members))
        for member in members:
            await member.stop()

    async def test_an_idempotent_producer(self, cloud: FakeCloud, broker: Broker) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cloud.bootstrap, enable_idempotence=True)
        await producer.start()
        offsets = [
            (await producer.send_and_wait("t", b"%d" % number, partition=0)).offset
            for number in range(20)
        ]
        await producer.stop()
        assert offsets == list(range(20))

    async def test_administration(self, cloud: FakeCloud, broker: Broker) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cloud.bootstrap)
        await admin.start()
        name = f"made-{uuid.UUID(int=5)}"
        await admin.create_topics([NewTopic(name, 2, 1)])
        assert name in await admin.list_topics()
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()
        await admin.close()


async def test_clients_follow_a_handed_over_partition(cloud: FakeCloud) -> None:
    """Two brokers; the one that leads goes away in peace in the middle of the stream."""
    await cloud.start_broker(1)
    await cloud.start_broker(2)
    topic = await cloud.brokers[1].topics.create("t", 1)
    leader = cloud.brokers[1].cluster.preferred_leader(topic, 0)
    assert leader is not None
    producer = AIOKafkaProducer(
        bootstrap_servers=cloud.bootstrap, enable_idempotence=True, retry_backoff_ms=20
    )
    await producer.start()
    offsets = []
    async with asyncio.timeout(60):
        for number in range(60):
            if number == 20:
                closing = asyncio.create_task(cloud.brokers.pop(leader).close())
            sent = await producer.send_and_wait("t", b"%d" % number)
            offsets.append(sent.offset)
        await closing
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=cloud.bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        received = [int((await consumer.getone()).value) for _ in range(60)]
        await consumer.stop()
    assert offsets == list(range(60))
    assert received == list(range(60))
