"""The registry's topic: read into the catalogue, written in transactions.

Any number of registries may work on one topic, and each takes writes. All write with the same
transactional id: who begins fences the one before, then reads to the end, decides on what is really
there, and commits. A commit succeeds only while nobody else began, so no two of them decide on the
same state. Nobody is elected, and nothing is forwarded.

A question about the newest state first asks where the topic ends, over a connection of its own: on
that of the reader it would wait behind a fetch that the broker holds open (`fetch.max.wait.ms`).
Questions that come while one is being answered share the next answer.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from client.errors import QuireError
from client.pubsub.brokers import Brokers
from client.pubsub.errors import (
    ProducerFenced,
    PubSubError,
    TopicExists,
    TopicNotFound,
    TransactionAborted,
    check_topic_name,
    reason,
)
from client.pubsub.topics import TopicAdmin
from client.pubsub.transactional_publisher import TransactionalPublisher, TransactionSettings
from ops.schemas.core.catalogue import Catalogue
from ops.schemas.core.errors import STORE_FAILED, STORE_TIMED_OUT, RegistryError
from ops.schemas.core.log_records import Change, LogRecord, decode, encode

log = logging.getLogger("schemas")

T = TypeVar("T")
Decide = Callable[[], Awaitable[tuple[T, Sequence[Change]]]]
"""Looks at the catalogue; returns the answer, and what must be in the log before it is given."""

_PARTITION: Final = 0
_ATTEMPTS: Final = 12
"""How often others may come between a decision and its commit."""
_PAUSE_S: Final = 0.2
"""At most this long before the second attempt, twice as long before each further one."""
_READ_TIMEOUT_S: Final = 30.0
_POLL_MS: Final = 20
_RECORDS_PER_POLL: Final = 500


class SchemaLog:
    """Reads and writes the topic. `start` once, `close` once."""

    def __init__(self, brokers: Brokers, topic: str, catalogue: Catalogue) -> None:
        self._brokers = brokers
        self._topic = topic
        self._at = TopicPartition(topic, _PARTITION)
        self._catalogue = catalogue
        self._rng = random.SystemRandom()
        self._consumer: AIOKafkaConsumer | None = None
        self._ends: AIOKafkaConsumer | None = None
        """Asks where the topic ends; reads nothing."""
        self._publisher: TransactionalPublisher | None = None
        self._reading = asyncio.Lock()
        self._begun = 0
        """Rounds of catching up."""
        self._over: tuple[int, RegistryError | None] = (0, None)
        """The last round that ended, and how."""
        self._writing = asyncio.Lock()
        self._awaited: LogRecord | None = None
        """The last record of the write under way, until it was read."""
        self.unreadable_count = 0
        """Records that are none of ours and of nobody's whom we know."""

    async def start(self, replication_factor: int) -> None:
        """Create the topic if need be and read all of it.

        Raises QuireError if no broker answers or the topic is not fit for it.
        """
        check_topic_name(self._topic)
        async with TopicAdmin(self._brokers) as topics:
            await self._check_topic(topics, replication_factor)
        self._consumer, self._ends = self._new_consumer(), self._new_consumer()
        await self._ends.start()
        await self._consumer.start()
        self._consumer.assign([self._at])
        await self.catch_up()

    async def close(self) -> None:
        """Disconnect."""
        await self._drop_publisher()
        for consumer in (self._consumer, self._ends):
            if consumer is not None:
                await consumer.stop()

    async def catch_up(self) -> None:
        """Read what is committed by now. Raises RegistryError if the brokers do not answer.

        One round serves all that asked before it began: it sees what was committed when they did.
        """
        begun = self._begun
        async with self._reading:
            number, failure = self._over
            if number > begun:
                if failure is not None:
                    raise failure
                return
            self._begun = number = self._begun + 1
            try:
                await self._read_to_the_end()
            except RegistryError as error:
                self._over = number, error
                raise
            self._over = number, None

    async def _read_to_the_end(self) -> None:
        assert self._consumer is not None and self._ends is not None
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                end = (await self._ends.end_offsets([self._at]))[self._at]
                while await self._consumer.position(self._at) < end:
                    await self._read_some()
        except TimeoutError:
            raise RegistryError(STORE_TIMED_OUT, f"topic {self._topic}: no answer") from None
        except KafkaError as error:
            raise RegistryError(
                STORE_FAILED, f"reading topic {self._topic}: {reason(error)}"
            ) from error

    def _new_consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **self._brokers.settings(),
            client_id="quire-schemas",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )

    async def write(self, decide: Decide[T]) -> T:
        """Decide, append, and return the answer once all of it was committed and read.

        Raises what `decide` raises, and RegistryError with a code of the store: then it may have
        happened.
        """
        async with self._writing:
            for attempt in range(_ATTEMPTS):
                try:
                    publisher = await self._writer()
                    answer, changes = await decide()
                    if changes:
                        await self._commit(publisher, [encode(one) for one in changes])
                    return answer
                except (ProducerFenced, TransactionAborted) as error:
                    log.info("schemas.write_again reason=%s", error)
                    await self._drop_publisher()
                    # Whoever fenced us needs a moment to commit; two at once must not go on
                    # fencing each other.
                    await asyncio.sleep(self._rng.uniform(0, _PAUSE_S * min(2**attempt, 16)))
                except PubSubError as error:
                    await self._drop_publisher()
                    raise RegistryError(
                        STORE_FAILED, f"writing topic {self._topic}: {error}"
                    ) from error
            raise RegistryError(STORE_FAILED, "other registries are writing all the time")

    async def _writer(self) -> TransactionalPublisher:
        """Return a publisher; if it is new, others are fenced and what they committed is read."""
        if self._publisher is None:
            publisher = TransactionalPublisher(
                f"quire-schemas-{self._topic}",
                self._brokers,
                TransactionSettings(client_id="quire-schemas", retry_timeout_ms=20_000),
            )
            await publisher.start()
            self._publisher = publisher
            await self.catch_up()
        return self._publisher

    async def _commit(
        self, publisher: TransactionalPublisher, records: Sequence[LogRecord]
    ) -> None:
        self._awaited = records[-1]
        async with publisher.transaction():
            for one in records:
                await publisher.enqueue(self._topic, one.value, key=one.key, partition=_PARTITION)
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                # A commit is answered once it is decided; it is visible a moment later.
                while self._awaited is not None:
                    await self.catch_up()
        except TimeoutError:
            raise RegistryError(STORE_TIMED_OUT, "what was committed is not visible yet") from None

    async def _read_some(self) -> None:
        assert self._consumer is not None
        found = await self._consumer.getmany(
            self._at, timeout_ms=_POLL_MS, max_records=_RECORDS_PER_POLL
        )
        for record in found.get(self._at, ()):
            try:
                change = decode(record.key, record.value)
            except ValueError as error:
                self.unreadable_count += 1
                log.warning("schemas.unreadable offset=%d reason=%s", record.offset, error)
                continue
            if change is not None:
                self._catalogue.apply(change)
            if self._awaited == (record.key, record.value):
                self._awaited = None

    async def _check_topic(self, topics: TopicAdmin, replication_factor: int) -> None:
        try:
            found = await topics.describe(self._topic)
        except TopicNotFound:
            try:
                await topics.create(
                    self._topic,
                    partition_count=1,
                    replication_factor=replication_factor,
                    configs={"cleanup.policy": "compact"},
                )
            except TopicExists:
                log.info("schemas.topic_exists topic=%s", self._topic)
            found = await topics.describe(self._topic)
        policy = found.configs.get("cleanup.policy", "")
        if len(found.partitions) != 1 or policy != "compact":
            raise QuireError(
                f"topic {self._topic} has {len(found.partitions)} partitions and cleanup.policy="
                f"{policy or 'delete'}: schemas need one partition and compact, or they would be"
                " lost; use another topic or change this one"
            )

    async def _drop_publisher(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            try:
                await publisher.close()
            except PubSubError as error:
                log.info("schemas.publisher_closed reason=%s", error)
