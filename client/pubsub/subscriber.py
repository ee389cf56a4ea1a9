"""Subscribe to topics: an asyncio consumer with this project's defaults.

A thin layer over aiokafka's consumer. What it decides, and why:

- Nothing is committed behind the application's back. `commit` records that everything handed
  out so far is processed; after a crash the group goes on there, so each record is processed at
  least once.
- A group without a committed position begins with the earliest record: new groups lose nothing.
- As with Kafka's own clients, records of open and aborted transactions are read, too, unless
  `isolation_level` is "read_committed": then none of an aborted one, and none beyond the first that
  is still open (the last stable offset). Its group then begins at offsets that no open transaction
  is about to move.
- At most one fetched response per partition waits in memory; a slow loop slows the fetching.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    KafkaConnectionError,
    KafkaError,
)
from aiokafka.structs import ConsumerRecord

from client.errors import ConfigError
from client.pubsub.addresses import BOOTSTRAP_SERVERS
from client.pubsub.brokers import Brokers
from client.pubsub.errors import (
    BrokerUnreachable,
    PubSubError,
    UnreadableBatch,
    check_topic_name,
    translate,
)
from client.pubsub.stable_offsets import StableConsumer

_PATIENCE_MS: Final = 500
BATCH_RECORDS_MAX: Final = 5_000
"""Records of one `next_batch`."""

_COMMITTED: Final = "read_committed"

_START_TIMEOUT_S: Final = 60.0
"""Joining a group waits for the other members, so this exceeds a rebalance."""


OnAssigned = Callable[[list[tuple[str, int]]], None]
"""Told the (topic, partition) pairs of this member after each rebalance."""


class Record(NamedTuple):
    """One record as it is in the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    """None is a tombstone."""
    headers: Sequence[tuple[str, bytes]]


class Positions(NamedTuple):
    """Where a member of a group goes on, for `TransactionalPublisher.send_offsets`.

    The member is what lets the brokers refuse offsets from one that has lost its partitions.
    """

    group: str
    offsets: Mapping[tuple[str, int], int]
    """By (topic, partition): the offset after the last record handed out."""
    member_id: str = ""
    generation: int = -1
    """-1 with an empty member id: of a group without members."""


class Subscriber:
    """Reads records of topics, alone or as a member of a group.

        async with Subscriber("greetings", group="readers") as subscriber:
            async for record in subscriber:
                print(record.value)
                await subscriber.commit()

    Members of one group share the partitions. Without a group it reads all partitions, and
    commits nothing.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Brokers = BOOTSTRAP_SERVERS,
        group: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        client_id: str = "quire-subscriber",
        session_timeout_ms: int = 10_000,
        on_assigned: OnAssigned | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        """`start` is where to begin when the group (or a lone reader) has no position yet.

        `partition` reads this one of a single topic, without a group, and `offset` begins there; an
        offset that the partition does not have counts as none. `on_assigned` hears the partitions
        of this member after each rebalance. Raises ConfigError if `bootstrap_servers` is not
        `host:port[,host:port...]`, there is no such isolation level, or arguments exclude each
        other, and InvalidTopic.
        """
        self._brokers = Brokers.of(bootstrap_servers)
        if isolation_level not in ("read_uncommitted", "read_committed"):
            raise ConfigError(
                f"isolation_level {isolation_level!r}: use read_uncommitted or read_committed"
            )
        if partition is not None and (group is not None or len(topics) != 1):
            raise ConfigError("a partition is read of one topic and without a group")
        if offset is not None and partition is None:
            raise ConfigError("an offset needs a partition")
        for topic in topics:
            check_topic_name(topic)
        self._partition = partition
        self._offset = offset
        self._topics = topics
        self._group = group
        self._on_assigned = on_assigned
        self._settings: dict[str, object] = {
            **self._brokers.settings(),
            "client_id": client_id,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": start,
            "isolation_level": isolation_level,
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": max(1, session_timeout_ms // 5),
        }
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> None:
        """Connect, join the group and get partitions. Raises BrokerUnreachable, TopicNotFound."""
        stable = self._group is not None and self._settings["isolation_level"] == _COMMITTED
        consumer = (StableConsumer if stable else AIOKafkaConsumer)(**self._settings)
        if self._partition is None:
            consumer.subscribe(self._topics, listener=_Listener(self._on_assigned))
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await consumer.start()
                self._take_partition(consumer)
        except KafkaConnectionError as error:
            await consumer.stop()
            raise BrokerUnreachable(await self._brokers.why_unreachable()) from error
        except TimeoutError as error:
            await consumer.stop()
            names = ", ".join(self._topics)
            raise BrokerUnreachable(f"no partitions of {names} were assigned in time") from error
        except KafkaError as error:
            await consumer.stop()
            raise self._failure(error) from error
        except BaseException:
            await consumer.stop()
            raise
        self._consumer = consumer

    def _take_partition(self, consumer: AIOKafkaConsumer) -> None:
        """Read one partition, if that was asked for."""
        if self._partition is None:
            return
        place = TopicPartition(self._topics[0], self._partition)
        consumer.assign([place])
        if self._offset is not None:
            consumer.seek(place, self._offset)

    async def close(self) -> None:
        """Leave the group and disconnect. What is not committed comes again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        try:
            return _record(await self._running().getone())
        except ConsumerStoppedError:
            raise StopAsyncIteration from None
        except Exception as error:
            if not _is_unreadable(error):
                raise self._failure(error) from error
            while True:
                found = await self._before_the_unreadable(_PATIENCE_MS, 1)
                if found:
                    return found[0]

    async def next_batch(
        self, *, timeout_ms: int = 500, records_max: int = BATCH_RECORDS_MAX
    ) -> list[Record]:
        """Return the next records, in order per partition; empty when none came in time.

        The whole batch counts as handed out: call `commit` after processing all of it. Raises
        UnreadableBatch, with its place, once everything before such a batch was handed out.
        """
        try:
            batches = await self._running().getmany(timeout_ms=timeout_ms, max_records=records_max)
        except Exception as error:
            if not _is_unreadable(error):
                raise self._failure(error) from error
            return await self._before_the_unreadable(timeout_ms, records_max)
        return [_record(record) for batch in batches.values() for record in batch]

    async def _before_the_unreadable(self, timeout_ms: int, records_max: int) -> list[Record]:
        """A batch cannot be read, and aiokafka has dropped all that came before it in the same
        answer: take that record by record, or name the place if there is none."""
        consumer = self._running()
        found: list[Record] = []
        for at in sorted(consumer.assignment()):
            try:
                while len(found) < records_max:
                    batches = await consumer.getmany(at, timeout_ms=timeout_ms, max_records=1)
                    if not batches:
                        break
                    found += [_record(record) for batch in batches.values() for record in batch]
            except Exception as error:
                if found:
                    return found  # the next call meets it again
                if not _is_unreadable(error):
                    raise self._failure(error) from error
                offset = await consumer.position(at)
                raise UnreadableBatch(
                    f"the batch at offset {offset} of {at.topic} partition {at.partition} cannot be"
                    f" read ({type(error).__name__}: {error}): `quire record peek {at.topic}"
                    f" {at.partition} --offset {offset}` says where it ends"
                ) from error
        return found

    async def commit(self) -> None:
        """Make the group's position durable: everything handed out so far is processed.

        Raises CommitFailed if the group gave this member's partitions to another one.
        """
        if self._group is None:
            raise PubSubError("a subscriber without a group has no position to commit")
        try:
            await self._running().commit()
        except KafkaError as error:
            raise self._failure(error) from error

    def positions(self) -> Positions:
        """Return the group's positions, for a transaction that processes what was handed out.

        A partition of which nothing was handed out yet is left out.
        """
        if self._group is None:
            raise PubSubError("a subscriber without a group has no positions to send")
        consumer = self._running()
        assignment = consumer._subscription.subscription.assignment
        consumed = {} if assignment is None else assignment.all_consumed_offsets()
        offsets = {(at.topic, at.partition): one.offset for at, one in consumed.items()}
        coordinator = consumer._coordinator
        return Positions(self._group, offsets, coordinator.member_id, coordinator.generation)

    async def rewind(self) -> None:
        """Go back to the group's committed positions: what was handed out since comes again.

        For after a transaction that was aborted. Where nothing is committed it goes to `start`.
        """
        consumer = self._running()
        try:
            for at in consumer.assignment():
                offset = await consumer.committed(at)
                if offset is not None:
                    consumer.seek(at, offset)
                elif self._settings["auto_offset_reset"] == "earliest":
                    await consumer.seek_to_beginning(at)
                else:
                    await consumer.seek_to_end(at)
        except KafkaError as error:
            raise self._failure(error) from error

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs this member reads now."""
        return sorted((tp.topic, tp.partition) for tp in self._running().assignment())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _running(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise PubSubError("the subscriber is not started: use `async with Subscriber(...)`")
        return self._consumer

    def _failure(self, error: BaseException) -> PubSubError:
        return translate(error, f"subscribing to {', '.join(self._topics)} failed")


def _is_unreadable(error: Exception) -> bool:
    """Whether a batch is to blame: aiokafka passes on whatever a codec raises."""
    return not isinstance(error, KafkaError) or isinstance(error, CorruptRecordException)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    def __init__(self, on_assigned: OnAssigned | None) -> None:
        self._on_assigned = on_assigned

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Nothing to save: what was not committed is not processed."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        if self._on_assigned is not None:
            self._on_assigned(sorted((tp.topic, tp.partition) for tp in assigned))


def _record(record: ConsumerRecord) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        record.headers,
    )
