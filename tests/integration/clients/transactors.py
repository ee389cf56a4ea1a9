"""The transactional side of every client: some transactions, a fenced producer, a reader.

Each client does the same three things, in its own way:

    rounds   transactions one after the other by one producer, committed and aborted, with offsets
    fenced   a producer loses its transactional id to another one and tries to commit; returns what
             it is told, and the other one commits
    read     everything that a reader of committed data is given
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import KafkaError as PythonKafkaError
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

from tests.integration.clients import installed, programs, traffic
from tests.integration.clients.java_programs import java_program

NO_OFFSET = -1
_TIMEOUT_S = 30


class Round(NamedTuple):
    """One transaction: the records of some numbers, and perhaps an offset."""

    first: int
    end: int
    commit: bool
    offset: int = NO_OFFSET


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a client works."""

    brokers: str
    topic: str
    id: str
    """Its transactional id."""
    group: str
    source: str
    """The topic whose partition 0 the offsets are of."""
    count: int
    """Records that a reader of committed data finds: kafkajs does not tell where it is."""
    partitions: int = traffic.PARTITION_COUNT


class Transactor(Protocol):
    """One client's transactions."""

    def rounds(self, place: Place, rounds: list[Round]) -> None:
        """Make transactions, one after the other."""
        ...

    def fenced(self, place: Place) -> str:
        """Return what a producer is told when it commits, and another one has its id."""
        ...

    def read(self, place: Place) -> list[str]:
        """Return the values that a reader of committed data is given."""
        ...


class Librdkafka:
    """confluent-kafka."""

    def _producer(self, place: Place) -> Producer:
        producer = Producer({"bootstrap.servers": place.brokers, "transactional.id": place.id})
        producer.init_transactions(_TIMEOUT_S)
        return producer

    def rounds(self, place: Place, rounds: list[Round]) -> None:
        producer = self._producer(place)
        consumer = Consumer({"bootstrap.servers": place.brokers, "group.id": place.group})
        for one in rounds:
            producer.begin_transaction()
            for number in range(one.first, one.end):
                producer.produce(place.topic, traffic.value(number), traffic.key(number))
            if one.offset != NO_OFFSET:
                offsets = [TopicPartition(place.source, 0, one.offset)]
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(offsets, metadata, _TIMEOUT_S)
            if one.commit:
                producer.commit_transaction(_TIMEOUT_S)
            else:
                producer.flush(_TIMEOUT_S)
                producer.abort_transaction(_TIMEOUT_S)
        consumer.close()

    def fenced(self, place: Place) -> str:
        first = self._producer(place)
        first.begin_transaction()
        first.produce(place.topic, traffic.value(0), traffic.key(0))
        first.flush(_TIMEOUT_S)
        second = self._producer(place)
        met = "nothing"
        try:
            first.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            met = error.args[0].name()
        second.begin_transaction()
        second.produce(place.topic, traffic.value(1), traffic.key(1))
        second.commit_transaction(_TIMEOUT_S)
        return met

    def read(self, place: Place, *, level: str = "read_committed") -> list[str]:
        settings = {"group.id": f"reader-{place.id}", "enable.partition.eof": True}
        consumer = Consumer(
            {"bootstrap.servers": place.brokers, "isolation.level": level, **settings}
        )
        consumer.assign([TopicPartition(place.topic, p, 0) for p in range(place.partitions)])
        values, ended = [], set()

        def is_over() -> bool:
            message = consumer.poll(1.0)
            if message is not None and message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                ended.add(message.partition())
            elif message is not None:
                values.append(message.value().decode())
            return len(ended) == place.partitions

        traffic.wait_for(is_over, "ends of partitions")
        consumer.close()
        return values


class KafkaPython:
    """kafka-python."""

    def _producer(self, place: Place) -> KafkaProducer:
        producer = KafkaProducer(bootstrap_servers=place.brokers, transactional_id=place.id)
        producer.init_transactions()
        return producer

    def _send(self, producer: KafkaProducer, place: Place, numbers: range) -> None:
        for number in numbers:
            value, key = traffic.value(number).encode(), traffic.key(number).encode()
            producer.send(place.topic, value, key)

    def rounds(self, place: Place, rounds: list[Round]) -> None:
        producer = self._producer(place)
        for one in rounds:
            producer.begin_transaction()
            self._send(producer, place, range(one.first, one.end))
            if one.offset != NO_OFFSET:
                offsets = {
                    PythonTopicPartition(place.source, 0): OffsetAndMetadata(one.offset, "", -1)
                }
                producer.send_offsets_to_transaction(
                    offsets, ConsumerGroupMetadata(place.group, -1, "", None)
                )
            if one.commit:
                producer.commit_transaction()
            else:
                producer.flush(_TIMEOUT_S)
                producer.abort_transaction()
        producer.close(_TIMEOUT_S)

    def fenced(self, place: Place) -> str:
        first = self._producer(place)
        first.begin_transaction()
        self._send(first, place, range(1))
        first.flush(_TIMEOUT_S)
        second = self._producer(place)
        met = "nothing"
        try:
            first.commit_transaction()
        except PythonKafkaError as error:
            met = type(error).__name__
        second.begin_transaction()
        self._send(second, place, range(1, 2))
        second.commit_transaction()
        for producer in (first, second):
            with contextlib.suppress(PythonKafkaError):
                producer.close(_TIMEOUT_S)
        return met

    def read(self, place: Place) -> list[str]:
        consumer = KafkaConsumer(
            bootstrap_servers=place.brokers, group_id=None, isolation_level="read_committed"
        )
        partitions = [PythonTopicPartition(place.topic, p) for p in range(place.partitions)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        values: list[str] = []

        def is_over() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                values.extend(record.value.decode() for record in records)
            return all(consumer.position(one) >= ends[one] for one in partitions)

        traffic.wait_for(is_over, "ends of partitions")
        consumer.close()
        return values


class Aiokafka:
    """aiokafka."""

    def rounds(self, place: Place, rounds: list[Round]) -> None:
        asyncio.run(self._rounds(place, rounds))

    def fenced(self, place: Place) -> str:
        return asyncio.run(self._fenced(place))

    def read(self, place: Place) -> list[str]:
        return asyncio.run(self._read(place))

    def _producer(self, place: Place) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=place.brokers, transactional_id=place.id)

    async def _send(self, producer: AIOKafkaProducer, place: Place, numbers: range) -> None:
        for number in numbers:
            value, key = traffic.value(number).encode(), traffic.key(number).encode()
            await producer.send(place.topic, value, key)

    async def _rounds(self, place: Place, rounds: list[Round]) -> None:
        async with self._producer(place) as producer:
            for one in rounds:
                await producer.begin_transaction()
                await self._send(producer, place, range(one.first, one.end))
                if one.offset != NO_OFFSET:
                    offsets = {AioTopicPartition(place.source, 0): one.offset}
                    await producer.send_offsets_to_transaction(offsets, place.group)
                if one.commit:
                    await producer.commit_transaction()
                else:
                    await producer.flush()
                    await producer.abort_transaction()

    async def _fenced(self, place: Place) -> str:
        first, second = self._producer(place), self._producer(place)
        await first.start()
        await first.begin_transaction()
        await self._send(first, place, range(1))
        await first.flush()
        await second.start()
        met = "nothing"
        try:
            await first.commit_transaction()
        except AioKafkaError as error:
            met = type(error).__name__
        await second.begin_transaction()
        await self._send(second, place, range(1, 2))
        await second.commit_transaction()
        for producer in (first, second):
            with contextlib.suppress(AioKafkaError):
                await producer.stop()
        return met

    async def _read(self, place: Place) -> list[str]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=place.brokers, isolation_level="read_committed"
        )
        await consumer.start()
        partitions = [AioTopicPartition(place.topic, p) for p in range(place.partitions)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        values: list[str] = []
        async with asyncio.timeout(traffic.PATIENCE_S):
            while any([await consumer.position(one) < ends[one] for one in partitions]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [record.value.decode() for record in records]
        await consumer.stop()
        return values


class Program:
    """A client in another language: a program that takes a step and its settings."""

    def __init__(self, command: Callable[[], list[str]]) -> None:
        self._command = command

    def rounds(self, place: Place, rounds: list[Round]) -> None:
        self._step("rounds", place, rounds=[one._asdict() for one in rounds])

    def fenced(self, place: Place) -> str:
        return str(self._step("fenced", place))

    def read(self, place: Place) -> list[str]:
        return list(self._step("read", dataclasses.replace(place, group=f"reader-{place.id}")))

    def _step(self, name: str, place: Place, **more: Any) -> Any:
        settings = json.dumps({**dataclasses.asdict(place), **more})
        done = subprocess.run(
            [*self._command(), name, settings],
            capture_output=True,
            text=True,
            timeout=2 * traffic.PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def _kafkajs() -> list[str]:
    script = installed.folder("kafkajs/node_modules").parent / "transactions.js"
    return [installed.command("node"), str(script)]


def _franz_go() -> list[str]:
    return [str(installed.folder("franz-go/bin") / "transactions")]


TRANSACTORS: dict[str, Transactor] = {
    "librdkafka": Librdkafka(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
    "java": Program(lambda: java_program("java", "Transactions")),
    "java-3.9": Program(lambda: java_program("java-3.9", "Transactions")),
    "kafkajs": Program(_kafkajs),
    "franz-go": Program(_franz_go),
    "sarama": Program(lambda: programs.command("sarama")),
}
