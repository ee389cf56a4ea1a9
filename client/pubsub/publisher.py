"""Publish records: an asyncio producer with this project's defaults.

A thin layer over aiokafka's producer. What it decides, and why:

- Idempotence is on and every record waits for the ack quorum (`acks=all`): a retry after a
  lost answer, a fail-over or a restart never makes a second copy and never changes the order.
- Large batches and no linger: aiokafka keeps one request in flight per broker, so records
  gather into batches by themselves while a request is on its way.
- `enqueue` waits while a partition's queue (one batch queued, one in flight) is full: memory is
  bounded and the source feels the back-pressure.
- No failure passes unseen: a record whose failure nobody asked for fails the next `flush`.

Source: aiokafka `producer/sender.py` and `message_accumulator.py` for what is retried: with
idempotence every retriable error, without an end; a fail-over therefore only takes time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from client.pubsub.addresses import BOOTSTRAP_SERVERS
from client.pubsub.brokers import Brokers
from client.pubsub.errors import (
    BrokerUnreachable,
    PublishFailed,
    PubSubError,
    RecordTooLarge,
    TopicNotFound,
    check_topic_name,
    translate,
)

Headers = Sequence[tuple[str, bytes]]

BATCH_SIZE_MAX: Final = 512 * 1024
"""Bytes of one batch: below the broker's default `max.message.bytes` of 1 MiB."""

REQUEST_SIZE_MAX: Final = 1024 * 1024

RECORD_SIZE_MAX: Final = REQUEST_SIZE_MAX - 1024
"""Bytes of one record, key and headers included; the rest is for the batch around it."""

RECORDS_PER_TURN: Final = 50
"""After this many records `enqueue` lets the event loop turn: otherwise a fast source would fill
whole batches before the first byte leaves, and hold up every other task."""

START_TIMEOUT_S: Final = 30.0
"""How long `start` waits for brokers."""

TOPIC_TIMEOUT_S: Final = 15.0
"""How long the first record of a topic waits for the topic to appear (or to be created)."""

_ABANDON_TIMEOUT_S: Final = 5.0
"""How long a block that ends with an exception still waits for acknowledgements."""


class Address(NamedTuple):
    """Where an acknowledged record is: the same for all readers, for ever."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


OnDone = Callable[[Address | PubSubError], None]
"""Told once per record, on the event loop: where it is, or why it is not acknowledged."""


class Publisher:
    """Publishes records to topics. Use it as an async context manager.

        async with Publisher("localhost:9092") as publisher:
            address = await publisher.publish("greetings", b"hello", key=b"en")

    Leaving the block waits until every record is acknowledged; leaving it with an exception
    waits a few seconds at most.
    """

    def __init__(
        self,
        bootstrap_servers: str | Brokers = BOOTSTRAP_SERVERS,
        *,
        client_id: str = "quire-publisher",
        compression: str | None = None,
        batch_size_max: int = BATCH_SIZE_MAX,
        request_timeout_ms: int = 40_000,
        retry_backoff_ms: int = 100,
    ) -> None:
        """`compression` is None, "gzip", "snappy", "lz4" or "zstd"; the broker stores it as is.

        Raises ConfigError if `bootstrap_servers` is not `host:port[,host:port...]`.
        """
        self._brokers = Brokers.of(bootstrap_servers)
        self._settings: dict[str, object] = {
            **self._brokers.settings(),
            "client_id": client_id,
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": compression,
            "max_batch_size": batch_size_max,
            "max_request_size": REQUEST_SIZE_MAX,
            "linger_ms": 0,
            "request_timeout_ms": request_timeout_ms,
            "retry_backoff_ms": retry_backoff_ms,
        }
        self._producer: AIOKafkaProducer | None = None
        self._failure: PubSubError | None = None
        self._known_topics: set[str] = set()
        self._unacknowledged = 0
        self._turn = 0

    @property
    def unacknowledged(self) -> int:
        """Count of records that are queued or on their way."""
        return self._unacknowledged

    async def start(self) -> None:
        """Connect. Raises BrokerUnreachable."""
        producer = AIOKafkaProducer(**self._settings)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await producer.start()
        except (KafkaError, TimeoutError) as error:
            await producer.stop()
            raise BrokerUnreachable(await self._brokers.why_unreachable()) from error
        except BaseException:
            await producer.stop()
            raise
        self._producer = producer

    async def close(self, timeout_s: float | None = None) -> None:
        """Wait for all acknowledgements, then disconnect.

        Raises like `flush`, and PublishFailed if records are unacknowledged after `timeout_s`;
        without a time limit it waits as long as brokers are away.
        """
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await producer.stop()
        except TimeoutError:
            self._remember(
                PublishFailed(f"{self._unacknowledged} records were not acknowledged in time")
            )
        finally:
            await _disconnect(producer)
        self._raise_failure()

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Address:
        """Publish one record and return its address once it is safely stored.

        Records with the same key go to the same partition and keep their order. A record needs
        a key or a value; `None` as value is a tombstone. Raises TopicNotFound, RecordTooLarge,
        PublishFailed (the record may be in the log).
        """
        future = await self._send(topic, value, key, partition, headers, timestamp_ms)
        try:
            return _address(await future)
        except KafkaError as error:
            raise _failure(topic, error) from error
        finally:
            self._unacknowledged -= 1

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        on_done: OnDone | None = None,
    ) -> None:
        """Queue one record and return; wait only while the partition's queue is full.

        `on_done` hears the outcome; without it a failure is raised by the next `flush` or
        `close`. Arguments and errors of the queueing itself are those of `publish`.
        """
        future = await self._send(topic, value, key, partition, headers, timestamp_ms)
        future.add_done_callback(partial(self._on_done, topic, on_done or self._remember))
        self._turn += 1
        if self._turn % RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def flush(self) -> None:
        """Wait until every queued record has its outcome.

        Raises the first failure of a record that was queued without `on_done`.
        """
        await self._running().flush()
        self._raise_failure()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        # The block's own exception matters, not what the hurried goodbye runs into.
        with contextlib.suppress(PubSubError):
            await self.close(_ABANDON_TIMEOUT_S)

    def _running(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise PubSubError("the publisher is not started: use `async with Publisher(...)`")
        return self._producer

    async def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> asyncio.Future[RecordMetadata]:
        producer = self._running()
        check_size(key, value, headers)
        try:
            if topic not in self._known_topics:
                await self._learn(topic)
            if partition is not None and partition not in await producer.partitions_for(topic):
                raise TopicNotFound(f"topic {topic} has no partition {partition}")
            future: asyncio.Future[RecordMetadata] = await producer.send(
                topic, value, key, partition, timestamp_ms=timestamp_ms, headers=headers
            )
        except KafkaError as error:
            raise _failure(topic, error) from error
        self._unacknowledged += 1
        return future

    async def _learn(self, topic: str) -> None:
        """Wait for a topic's metadata: brokers may create it because we ask."""
        check_topic_name(topic)
        try:
            async with asyncio.timeout(TOPIC_TIMEOUT_S):
                await self._running().partitions_for(topic)
        except TimeoutError as error:
            raise TopicNotFound(f"there is no topic {topic}") from error
        self._known_topics.add(topic)

    def _on_done(self, topic: str, on_done: OnDone, future: asyncio.Future[RecordMetadata]) -> None:
        self._unacknowledged -= 1
        error = future.exception()
        on_done(_address(future.result()) if error is None else _failure(topic, error))

    def _remember(self, outcome: Address | PubSubError) -> None:
        if self._failure is None and isinstance(outcome, PubSubError):
            self._failure = outcome

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def check_size(key: bytes | None, value: bytes | None, headers: Headers) -> None:
    """Raise RecordTooLarge for a record that no batch would take."""
    if key is None and value is None:
        raise ValueError("a record needs a key or a value")
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content)
    if size > RECORD_SIZE_MAX:
        raise RecordTooLarge(
            f"a record of {size:,} bytes is larger than the limit of {RECORD_SIZE_MAX:,} bytes"
        )


def _failure(topic: str, error: BaseException) -> PubSubError:
    return translate(error, f"publishing to {topic} failed", default=PublishFailed)


def _address(metadata: RecordMetadata) -> Address:
    return Address(metadata.topic, metadata.partition, metadata.offset, metadata.timestamp)


async def _disconnect(producer: AIOKafkaProducer) -> None:
    """End what `stop` leaves running when it is interrupted: the sender and the sockets."""
    sender = producer._sender.sender_task
    if sender is None or sender.done():
        return
    sender.cancel()
    await producer.client.close()
    await asyncio.wait([sender])
