"""Publish in transactions: records of many partitions, and offsets of a group, all or none.

Its own code over aiokafka's connections and metadata, because aiokafka's transactional producer
knows nothing of TV2 (KIP-890), sends offsets without the group member that they are of (KIP-447),
commits a transaction of which a record was refused, and cannot go on after an error that Kafka's
own producer survives by a new epoch. What it decides:

- The generation of the protocol is the newest that the brokers have finalized, looked up whenever
  a producer id or an epoch is asked for.
- A record that is refused or not acknowledged in time spoils its transaction: commit raises, and
  nothing of it becomes visible.
- An end without an answer is asked for again with the same epoch until `retry_timeout_ms`.

Source: KIP-98, KIP-360, KIP-447, KIP-890; verdicts on error codes: KIP-1050, `core/verdicts.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from client.errors import ConfigError
from client.pubsub.addresses import BOOTSTRAP_SERVERS
from client.pubsub.brokers import Brokers
from client.pubsub.coordinators import GROUP, TRANSACTION, Coordinators, NoAnswer
from client.pubsub.core import verdicts
from client.pubsub.core.transaction import (
    NO_PRODUCER,
    Identity,
    State,
    TopicPartition,
    TransactionState,
    WrongState,
)
from client.pubsub.core.verdicts import Judge, Refused, Verdict
from client.pubsub.errors import (
    BrokerUnreachable,
    PubSubError,
    TopicNotFound,
    TransactionInDoubt,
    check_topic_name,
)
from client.pubsub.kafka_requests import Answer, Versions
from client.pubsub.publisher import (
    BATCH_SIZE_MAX,
    RECORDS_PER_TURN,
    START_TIMEOUT_S,
    TOPIC_TIMEOUT_S,
    Headers,
    check_size,
)
from client.pubsub.record_queue import UNSENT_BYTES_MAX, RecordQueue
from client.pubsub.subscriber import Positions
from client.pubsub.transaction_sender import TransactionSender
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.partitioner import partition_of

T = TypeVar("T")

_INIT: Final = Versions(0, 4)
_INIT_OF_EPOCH: Final = Versions(3, 4)
_ADD_OFFSETS: Final = Versions(0, 4)
_OFFSETS: Final = {False: Versions(3, 4), True: Versions(5, 5)}
"""By generation. From version 3 the member is named; from 5 the group's partition is added."""
_END: Final = {False: Versions(0, 4), True: Versions(5, 5)}
_CODECS: Final = (None, "gzip", "snappy", "lz4", "zstd")


class TransactionSettings(NamedTuple):
    """How a transactional publisher works; the defaults suit most."""

    transaction_timeout_ms: int = 60_000
    """Brokers abort a transaction that is open for longer. At most their
    `transaction.max.timeout.ms`."""
    retry_timeout_ms: int = 60_000
    """How long a coordinator is asked, and a batch sent, again and again."""
    request_timeout_ms: int = 10_000
    compression: str | None = None
    """None, "gzip", "snappy", "lz4" or "zstd"."""
    batch_size_max: int = BATCH_SIZE_MAX
    unsent_bytes_max: int = UNSENT_BYTES_MAX
    """Records in memory before `enqueue` waits."""
    client_id: str = "quire-transactions"


class TransactionalPublisher:
    """Publishes in transactions. Use it as an async context manager.

        async with TransactionalPublisher("copier") as publisher:
            async with publisher.transaction():
                await publisher.enqueue("a", b"both of these")
                await publisher.enqueue("b", b"or none")

    One publisher at a time per transactional id: a second one fences the first, and whatever that
    had not committed is aborted. Leaving the block of a transaction commits it, leaving it with an
    exception aborts it.
    """

    def __init__(
        self,
        transactional_id: str,
        bootstrap_servers: str | Brokers = BOOTSTRAP_SERVERS,
        settings: TransactionSettings | None = None,
    ) -> None:
        """Raises ConfigError for an id, an address or a setting that is none."""
        self._settings = settings or TransactionSettings()
        if not transactional_id:
            raise ConfigError("a transactional id may not be empty")
        if self._settings.compression not in _CODECS:
            raise ConfigError(f"compression {self._settings.compression!r}: use one of {_CODECS}")
        self._brokers = Brokers.of(bootstrap_servers)
        self._id = transactional_id
        self._state = TransactionState()
        self._is_running: _Running | None = None
        self._turn = 0

    async def start(self) -> None:
        """Connect, and take over the transactional id: an open transaction of it is aborted.

        Raises BrokerUnreachable, TransactionRefused, TransactionInDoubt.
        """
        client = AIOKafkaClient(
            **self._brokers.settings(),
            client_id=self._settings.client_id,
            request_timeout_ms=self._settings.request_timeout_ms,
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await client.bootstrap()
        except (KafkaError, TimeoutError) as error:
            await client.close()
            raise BrokerUnreachable(await self._brokers.why_unreachable()) from error
        settings = self._settings
        coordinators = Coordinators(client, settings.retry_timeout_ms / 1000)
        queue = RecordQueue(
            settings.compression, settings.batch_size_max, settings.unsent_bytes_max
        )
        sender = TransactionSender(
            client, coordinators, self._id, self._state, queue, settings.retry_timeout_ms / 1000
        )
        self._is_running = _Running(client, coordinators, queue, sender)
        try:
            await self._initialise(Identity(NO_PRODUCER, -1))
        except BaseException:
            await self._disconnect()
            raise

    async def close(self) -> None:
        """Abort an open transaction and disconnect."""
        if self._is_running is None:
            return
        try:
            if self._state.state in (State.OPEN, State.SPOILED):
                await self.abort()
        finally:
            await self._disconnect()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin a transaction; commit it at the end of the block, or abort it. Raises as they do.

        An exception of the block passes on once the transaction is aborted.
        """
        await self.begin()
        try:
            yield self
        except BaseException:
            # The block's own exception matters, not what the abort runs into.
            with contextlib.suppress(PubSubError):
                if self._state.state in (State.OPEN, State.SPOILED):
                    await self.abort()
            raise
        try:
            await self.commit()
        except PubSubError:
            if self._state.state is State.SPOILED:
                await self.abort()
            raise

    async def begin(self) -> None:
        """Begin a transaction; first, abort one whose abort has not succeeded yet.

        Raises PubSubError while there is one that may commit, and as `abort` does.
        """
        if self._state.must_be_aborted:
            await self.abort()
        self._allowed(self._state.begin)

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record to the transaction; wait only while too much is unsent.

        Records with the same key go to the same partition and keep their order. Raises
        TopicNotFound, RecordTooLarge, and TransactionAborted once an earlier record failed.
        """
        running = self._running()
        check_size(key, value, headers)
        at = TopicPartition(topic, await self._partition(topic, key, partition))
        self._may_write()
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        running.queue.append(at, now_ms, key, value, headers)
        self._turn += 1
        if self._turn % RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)
        while running.queue.is_full:
            await running.queue.changed()
        self._may_write()

    async def send_offsets(self, positions: Positions) -> None:
        """Make the positions of a group part of the transaction: they move if it commits.

        Raises TransactionAborted, also if the group gave the partitions to another member.
        """
        running = self._running()
        self._may_write()
        group = positions.group
        doing = f"sending offsets of group {group}"
        if not positions.offsets:
            return
        self._state.reaches_brokers()
        try:
            if not self._state.second_generation and group not in self._state.enrolled.groups:
                fields = {**self._identity(), "group_id": group}
                await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, fields, _ADD_OFFSETS)
                self._state.enrolled.groups.add(group)
            await running.coordinators.ask(
                (GROUP, group),
                ApiKey.TXN_OFFSET_COMMIT,
                {**self._identity(), **_offset_fields(positions)},
                _OFFSETS[self._state.second_generation],
                lambda fields: [r.error_code for t in fields.topics for r in t.partitions],
                verdicts.of_offsets,
            )
        except Refused as error:
            raise running.sender.fail(error.verdict, f"{doing}: {error}") from error
        except NoAnswer as error:
            raise running.sender.fail(Verdict.ABORT, f"{doing}: {error}") from error

    async def commit(self) -> None:
        """Commit; when it returns, all of the transaction is decided, and soon visible.

        Raises TransactionAborted (abort it), TransactionInDoubt (call it again), ProducerFenced,
        TransactionRefused.
        """
        if self._state.state is not State.ENDING:
            self._may_write()
            await self._running().sender.drained()
        await self._end(commit=True)

    async def abort(self) -> None:
        """Abort; nothing of the transaction becomes visible to who reads committed data.

        Raises TransactionInDoubt (call it again), ProducerFenced, TransactionRefused.
        """
        running = self._running()
        await running.sender.discard()
        wants_epoch = self._state.wants_epoch
        await self._end(commit=False)
        if wants_epoch and not self._state.second_generation:
            await self._initialise(self._state.identity)

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

    async def _initialise(self, expected: Identity) -> None:
        """Ask for a producer id, or for the next epoch of the one that is `expected`."""
        running = self._running()
        fields = {
            "transactional_id": self._id,
            "transaction_timeout": self._settings.transaction_timeout_ms,
            "producer_id": expected.producer_id,
            "producer_epoch": expected.epoch,
        }
        versions = _INIT if expected.producer_id == NO_PRODUCER else _INIT_OF_EPOCH
        with self._settled("asking for an epoch"):
            answer = await self._ask(ApiKey.INIT_PRODUCER_ID, fields, versions)
            second = await running.coordinators.has_second_generation(self._id)
        identity = Identity(int(answer.fields.producer_id), int(answer.fields.producer_epoch))
        self._state.initialised(identity, second_generation=second)

    async def _end(self, *, commit: bool) -> None:
        if not self._allowed(lambda: self._state.end(commit=commit)):
            self._state.ended()  # no broker has heard of it
            return
        second = self._state.second_generation
        fields = {**self._identity(), "committed": commit}
        judge = verdicts.of_coordinator if commit or second else verdicts.of_first_abort
        with self._settled("committing" if commit else "aborting"):
            answer = await self._ask(ApiKey.END_TXN, fields, _END[second], judge)
        identity = None
        if second:
            next_id, next_epoch = answer.fields.producer_id, answer.fields.producer_epoch
            identity = Identity(int(next_id), int(next_epoch))
        self._state.ended(identity)

    async def _ask(
        self,
        api: ApiKey,
        fields: dict[str, Any],
        versions: Versions,
        judge: Judge = verdicts.of_coordinator,
    ) -> Answer:
        """Ask the transaction's coordinator. Raises Refused, NoAnswer."""
        who = (TRANSACTION, self._id)
        coordinators = self._running().coordinators
        return await coordinators.ask(who, api, fields, versions, _one_code, judge)

    @contextlib.contextmanager
    def _settled(self, doing: str) -> Iterator[None]:
        """Raises TransactionErrors for what asking the coordinator raises."""
        try:
            yield
        except Refused as error:
            raise self._running().sender.fail(error.verdict, f"{doing}: {error}") from error
        except NoAnswer as error:
            raise TransactionInDoubt(f"{doing}: no coordinator answered: {error}") from error

    def _identity(self) -> dict[str, Any]:
        identity = self._state.identity
        return {
            "transactional_id": self._id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
        }

    def _may_write(self) -> None:
        failure = self._running().sender.failure
        if failure is not None:
            raise failure
        self._allowed(self._state.must_be_open)

    def _allowed(self, step: Callable[[], T]) -> T:
        """Take a step of the state.

        Raises PubSubError for one at the wrong time, and again what ended the publisher.
        """
        try:
            return step()
        except WrongState as error:
            failure = self._running().sender.failure
            if self._state.state is State.DEAD and failure is not None:
                raise failure from error
            raise PubSubError(str(error)) from error

    def _running(self) -> _Running:
        if self._is_running is None:
            raise PubSubError(
                "the publisher is not started: use `async with TransactionalPublisher(...)`"
            )
        return self._is_running

    async def _partition(self, topic: str, key: bytes | None, partition: int | None) -> int:
        """Choose where a record goes, as Kafka's own producers do."""
        count = await self._partition_count(topic)
        if partition is not None:
            if not 0 <= partition < count:
                raise TopicNotFound(f"topic {topic} has no partition {partition}")
            return partition
        if key is not None:
            return partition_of(key, count)
        # Records without a key change places now and then: large batches, all partitions.
        return self._turn // RECORDS_PER_TURN % count

    async def _partition_count(self, topic: str) -> int:
        client = self._running().client
        known = client.cluster.partitions_for_topic(topic)
        if not known:
            check_topic_name(topic)
            try:
                async with asyncio.timeout(TOPIC_TIMEOUT_S):
                    known = await client._wait_on_metadata(topic)
            except (KafkaError, TimeoutError) as error:
                raise TopicNotFound(f"there is no topic {topic}") from error
        return len(known)

    async def _disconnect(self) -> None:
        running, self._is_running = self._is_running, None
        if running is not None:
            await running.sender.close()
            await running.client.close()


class _Running(NamedTuple):
    """What a publisher has while it is started."""

    client: AIOKafkaClient
    coordinators: Coordinators
    queue: RecordQueue
    sender: TransactionSender


def _one_code(fields: Any) -> list[int]:
    return [fields.error_code]


def _offset_fields(positions: Positions) -> dict[str, Any]:
    """Return what TxnOffsetCommit says of a group, its member and its offsets."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in sorted(positions.offsets.items()):
        row = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        topics.setdefault(topic, []).append(row)
    return {
        "group_id": positions.group,
        "generation_id": positions.generation,
        "member_id": positions.member_id,
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
    }
