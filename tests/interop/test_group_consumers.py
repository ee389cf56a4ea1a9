"""Group consumers that nobody here wrote, against whole brokers in this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.structs import OffsetAndMetadata as AioOffset
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from tests.fakes.live_brokers import LiveBrokers, in_thread

COUNT = 400


@pytest.fixture
async def brokers() -> AsyncIterator[LiveBrokers]:
    async with LiveBrokers() as live:
        yield live


async def produce(brokers: LiveBrokers, topic: str = "t", count: int = COUNT) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=brokers.bootstrap)
    await producer.start()
    try:
        for number in range(count):
            await producer.send(topic, str(number).encode(), partition=number % 4)
        await producer.flush()
    finally:
        await producer.stop()


def everything(count: int = COUNT) -> Counter[bytes]:
    return Counter(str(number).encode() for number in range(count))


class Seen(ConsumerRebalanceListener):
    """Counts the rebalances that one aiokafka consumer goes through."""

    def __init__(self) -> None:
        self.assigned = 0

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: object) -> None:
        self.assigned += 1


@contextlib.asynccontextmanager
async def aio_consumer(
    brokers: LiveBrokers, group: str = "g", listener: Seen | None = None
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=brokers.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        retry_backoff_ms=50,
    )
    consumer.subscribe(["t"], listener=listener)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


class TestAiokafka:
    async def test_two_members_share_the_partitions(self, brokers: LiveBrokers) -> None:
        await produce(brokers)
        got: Counter[bytes] = Counter()
        async with aio_consumer(brokers) as first, aio_consumer(brokers) as second:
            await brokers.until(
                lambda: (
                    len(first.assignment()) == len(second.assignment()) == 2
                    and not first.assignment() & second.assignment()
                ),
                "two partitions each",
            )
            for consumer in (first, second):
                await consumer.seek_to_beginning()
                while sum(got.values()) < (200 if consumer is first else 400):
                    for batch in (await consumer.getmany(timeout_ms=500)).values():
                        got.update(record.value for record in batch)
        assert got == everything()
        group = brokers.group("g")
        assert group is not None
        assert group.state.value == "Empty"

    async def test_it_resumes_where_it_committed(self, brokers: LiveBrokers) -> None:
        await produce(brokers)
        got: Counter[bytes] = Counter()
        for _ in range(4):
            async with aio_consumer(brokers) as consumer:
                for _ in range(100):
                    got[(await consumer.getone()).value] += 1
                await consumer.commit()
        assert got == everything()

    async def test_metadata_of_a_commit_comes_back(self, brokers: LiveBrokers) -> None:
        await produce(brokers, count=4)
        partition = AioPartition("t", 0)
        async with aio_consumer(brokers) as consumer:
            await brokers.until(lambda: bool(consumer.assignment()), "an assignment")
            await consumer.commit({partition: AioOffset(1, "what I thought")})
            coordinator = brokers.coordinator("g")
            assert coordinator is not None
            committed = coordinator[1].view().committed("g").get("t", 0)
            assert committed is not None
            assert (committed.offset, committed.metadata) == (1, "what I thought")

    async def test_a_coordinator_that_moves_disturbs_nobody(self, brokers: LiveBrokers) -> None:
        await produce(brokers)
        await brokers.add(3)  # type: ignore[arg-type]
        seen = Seen()
        async with aio_consumer(brokers, listener=seen) as consumer:
            before = [await consumer.getone() for _ in range(100)]
            await consumer.commit()
            group = brokers.group("g")
            old = brokers.coordinator("g")
            assert group is not None
            assert old is not None
            await brokers.remove(old[0])
            await brokers.until(lambda: brokers.coordinator("g") is not None, "a new coordinator")
            after = [await consumer.getone() for _ in range(300)]
            await consumer.commit()
            assert brokers.group("g") == group
            assert seen.assigned == 1
            new = brokers.coordinator("g")
            assert new is not None
            assert new[0] is not old[0]
            offsets = [committed.offset for _, committed in new[1].view().committed("g")]
            assert offsets == [100] * 4
        assert Counter(record.value for record in before + after) == everything()


def confluent(brokers: LiveBrokers, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6_000,
            "topic.metadata.refresh.interval.ms": 1_000,
            **settings,
        }
    )


Assigned = dict[str, set[int]]
"""Partitions by consumer; each consumer's own thread enters them, for librdkafka's sake."""


def poll_until(
    consumer: Consumer,
    done: Callable[[list[bytes]], bool],
    assigned: Assigned | None = None,
    name: str = "",
) -> list[bytes]:
    got: list[bytes] = []
    deadline_s = time.monotonic() + 30
    while not done(got):
        assert time.monotonic() < deadline_s, f"{len(got)} records"
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            got.append(message.value())
        if assigned is not None:
            assigned[name] = {one.partition for one in consumer.assignment()}
    return got


def shared(assigned: Assigned) -> bool:
    """Whether two consumers have two partitions each, all different."""
    return len(assigned) == 2 and [len(one) for one in assigned.values()] == [2, 2]


class TestConfluent:
    @pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
    async def test_two_members_share_the_partitions(
        self, brokers: LiveBrokers, strategy: str
    ) -> None:
        await produce(brokers)
        settings = {"partition.assignment.strategy": strategy}
        first, second = confluent(brokers, **settings), confluent(brokers, **settings)
        first.subscribe(["t"])
        alone = await in_thread(poll_until, first, lambda got: len(got) == COUNT)
        assert Counter(alone) == everything()
        second.subscribe(["t"])

        assigned: Assigned = {}
        await asyncio.gather(
            in_thread(poll_until, first, lambda _: shared(assigned), assigned, "first"),
            in_thread(poll_until, second, lambda _: shared(assigned), assigned, "second"),
        )
        assert assigned["first"] | assigned["second"] == {0, 1, 2, 3}
        await in_thread(second.close)
        await in_thread(poll_until, first, lambda _: len(assigned["first"]) == 4, assigned, "first")
        await in_thread(first.close)

    async def test_it_resumes_where_it_committed(self, brokers: LiveBrokers) -> None:
        await produce(brokers)
        got: list[bytes] = []
        for _ in range(4):
            consumer = confluent(brokers)
            consumer.subscribe(["t"])
            got += await in_thread(poll_until, consumer, lambda some: len(some) == 100)
            await in_thread(consumer.commit, asynchronous=False)
            await in_thread(consumer.close)
        assert Counter(got) == everything()

    async def test_a_static_member_restarts_without_a_rebalance(self, brokers: LiveBrokers) -> None:
        await produce(brokers)
        consumers = [
            confluent(brokers, **{"group.instance.id": name, "session.timeout.ms": 20_000})
            for name in ("i", "j")
        ]
        for consumer in consumers:
            consumer.subscribe(["t"])
        assigned: Assigned = {}
        await asyncio.gather(
            *(
                in_thread(poll_until, one, lambda _: shared(assigned), assigned, name)
                for one, name in zip(consumers, "ij", strict=True)
            )
        )
        before = brokers.group("g")
        assert before is not None
        running = [True]
        kept = asyncio.ensure_future(in_thread(poll_until, consumers[0], lambda _: not running[0]))
        await in_thread(consumers[1].close)
        del assigned["j"]
        again = confluent(brokers, **{"group.instance.id": "j", "session.timeout.ms": 20_000})
        again.subscribe(["t"])
        await in_thread(poll_until, again, lambda _: shared(assigned), assigned, "j")
        running[0] = False
        await kept
        after = brokers.group("g")
        assert after is not None
        assert after.state.value == "Stable"
        old = {one.instance_id: (one.member_id, one.assignment) for one in before.members}
        new = {one.instance_id: (one.member_id, one.assignment) for one in after.members}
        assert new["i"] == old["i"]
        assert new["j"][1] == old["j"][1]
        assert new["j"][0] != old["j"][0]
        for consumer in (consumers[0], again):
            await in_thread(consumer.close)

    async def test_admin_sees_and_changes_groups(self, brokers: LiveBrokers) -> None:
        await produce(brokers)
        consumer = confluent(brokers, **{"client.id": "me"})
        consumer.subscribe(["t"])
        await in_thread(poll_until, consumer, lambda got: len(got) == COUNT)
        await in_thread(consumer.commit, asynchronous=False)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})

        def look() -> None:
            listed = admin.list_consumer_groups().result(10)
            assert [one.group_id for one in listed.valid] == ["g"]
            assert listed.errors == []
            group = admin.describe_consumer_groups(["g"])["g"].result(10)
            assert group.state.name == "STABLE"
            assert group.members[0].client_id == "me"
            assert len(group.members[0].assignment.topic_partitions) == 4

        await in_thread(look)
        await in_thread(consumer.close)

        def change() -> None:
            wanted = ConsumerGroupTopicPartitions("g")
            found = admin.list_consumer_group_offsets([wanted])["g"].result(10)
            assert {one.offset for one in found.topic_partitions} == {100}
            reset = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 1, 7)])
            admin.alter_consumer_group_offsets([reset])["g"].result(10)
            one = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 1)])
            found = admin.list_consumer_group_offsets([one])["g"].result(10)
            assert found.topic_partitions[0].offset == 7
            admin.delete_consumer_groups(["g"])["g"].result(10)
            assert admin.list_consumer_groups().result(10).valid == []

        await in_thread(change)


class TestKafkaPython:
    def consumer(self, brokers: LiveBrokers) -> KafkaConsumer:
        return KafkaConsumer(
            "t",
            bootstrap_servers=brokers.bootstrap.split(","),
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6_000,
        )

    def take(self, consumer: KafkaConsumer, count: int) -> list[bytes]:
        got: list[bytes] = []
        deadline_s = time.monotonic() + 30
        while len(got) < count:
            assert time.monotonic() < deadline_s, f"{len(got)} of {count}"
            for batch in consumer.poll(timeout_ms=200, max_records=count - len(got)).values():
                got += (record.value for record in batch)
        return got

    async def test_it_resumes_where_it_committed(self, brokers: LiveBrokers) -> None:
        await produce(brokers)

        def work() -> list[bytes]:
            got: list[bytes] = []
            for _ in range(2):
                consumer = self.consumer(brokers)
                got += self.take(consumer, 200)
                consumer.commit()
                consumer.close()
            return got

        assert Counter(await in_thread(work)) == everything()

    async def test_two_members_share_the_partitions(self, brokers: LiveBrokers) -> None:
        await produce(brokers)
        first, second = await asyncio.gather(
            in_thread(self.consumer, brokers), in_thread(self.consumer, brokers)
        )

        def work(consumer: KafkaConsumer) -> None:
            deadline_s = time.monotonic() + 30
            while not len(first.assignment()) == len(second.assignment()) == 2:
                assert time.monotonic() < deadline_s
                consumer.poll(timeout_ms=100)

        await asyncio.gather(in_thread(work, first), in_thread(work, second))
        assert not first.assignment() & second.assignment()
        await asyncio.gather(in_thread(first.close), in_thread(second.close))

    async def test_admin_sees_groups(self, brokers: LiveBrokers) -> None:
        await produce(brokers)

        def work() -> None:
            consumer = self.consumer(brokers)
            self.take(consumer, COUNT)
            consumer.commit()
            admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap.split(","))
            listed = admin.list_groups()
            assert "g" in str(listed)
            described = admin.describe_groups(["g"])
            assert "Stable" in str(described)
            consumer.close()
            admin.close()

        await in_thread(work)
