"""Send record batches from a task until each of them is acknowledged.

A request has one batch of each partition, and a task has one request under way. The task has a
producer id of its own and numbers its batches, so whatever is sent again after a lost answer or a
fail-over is stored once, and in order. (A task that Spark runs again is another producer: that is
where "at least once" comes from.) In a transaction the producer id is that transaction's, and its
coordinator hears of each partition before anything is written there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kio.schema.errors import ErrorCode as Code

from client.spark.brokers.kafka_cluster import NO_LEADER, KafkaCluster
from client.spark.brokers.kafka_link import KafkaLink, LinkBroken
from client.spark.brokers.retries import FIRST_PAUSE_S, PAUSE_S_MAX, Transient, check_code
from client.spark.errors import BrokersUnreachable, RequestRefused, TopicMissing
from client.spark.splits import TopicPartition
from client.spark.write.encode import Unsent
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.produce_client import VERSION, encode_produce
from client.wire.kafka.requests import decode_response_body

REQUEST_BYTES_MAX: Final = 8 << 20
"""Batches of one request; a single larger one goes alone."""

_INIT_PRODUCER_ID_VERSION: Final = 1
_NO_PRODUCER: Final = (-1, -1)
_ALL: Final = -1
_TOO_LARGE: Final = (Code.message_too_large, Code.record_list_too_large)


class ProducerTransaction(Protocol):
    """The transaction that a task writes in."""

    @property
    def transactional_id(self) -> str:
        """Its name for the brokers."""
        ...

    def identity(self) -> tuple[int, int]:
        """Return (producer id, epoch); begins it if need be. Raises SparkSourceError."""
        ...

    def enrol(self, partitions: Sequence[TopicPartition]) -> None:
        """Make partitions part of it, those that are not yet. Raises SparkSourceError."""
        ...


class TaskProducer:
    """Sends the batches of one task. Not for use by several threads."""

    def __init__(
        self,
        cluster: KafkaCluster,
        acks: int,
        timeout_ms: int,
        transaction: ProducerTransaction | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._timeout_s = timeout_ms / 1000
        self._transaction = transaction
        self._now_s = now_s
        self._sleep = sleep
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._partition_counts: dict[str, int] = {}
        self.sent_records = 0
        """Records that were acknowledged."""

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has. Raises TopicMissing, BrokersUnreachable."""
        if topic not in self._partition_counts:
            facts = self._cluster.topics([topic]).get(topic)
            if facts is None:
                raise TopicMissing(
                    f"topic {topic} does not exist: create it first (quire topic create {topic})"
                )
            self._partition_counts[topic] = len(facts.leaders)
        return self._partition_counts[topic]

    def send(self, batches: Mapping[TopicPartition, Sequence[Unsent]]) -> None:
        """Send batches, in order within each partition; return once all are acknowledged.

        Raises BrokersUnreachable when nothing was acknowledged for the delivery timeout,
        RequestRefused, TopicMissing.
        """
        waiting = {at: deque(some) for at, some in batches.items() if some}
        if self._transaction is not None:
            self._transaction.enrol(list(waiting))
        deadline_s = self._now_s() + self._timeout_s
        pause_s = FIRST_PAUSE_S
        while waiting:
            acknowledged, trouble = self._round(waiting)
            waiting = {at: some for at, some in waiting.items() if some}
            if acknowledged:
                deadline_s = self._now_s() + self._timeout_s
                pause_s = FIRST_PAUSE_S
            if not trouble:
                continue
            if self._now_s() > deadline_s:
                raise BrokersUnreachable(
                    f"writing to {next(iter(waiting))} failed for {self._timeout_s:g} s"
                    f" (kafka.delivery.timeout.ms): {trouble}"
                )
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            self._look_again({at.topic for at in waiting})

    def _round(self, waiting: Mapping[TopicPartition, deque[Unsent]]) -> tuple[int, str]:
        """Send the first batch of each partition to its leader; return (acknowledged, trouble)."""
        acknowledged, trouble = 0, ""
        by_leader: dict[int, list[TopicPartition]] = {}
        for at in waiting:
            by_leader.setdefault(self._cluster.leader(at).broker_id, []).append(at)
        for broker_id, partitions in by_leader.items():
            if broker_id == NO_LEADER:
                trouble = f"{partitions[0]} has no leader"
                continue
            try:
                acknowledged += self._ask(broker_id, partitions, waiting)
            except (LinkBroken, Transient) as error:
                trouble = str(error)
        return acknowledged, trouble

    def _ask(
        self,
        broker_id: int,
        partitions: Sequence[TopicPartition],
        waiting: Mapping[TopicPartition, deque[Unsent]],
    ) -> int:
        link = self._cluster.link(broker_id)
        try:
            producer_id, epoch = self._identity(link)
            body = self._request(partitions, waiting, producer_id, epoch)
            answer = link.ask_raw(ApiKey.PRODUCE, body, self._timeout_s, VERSION)
        except LinkBroken:
            self._cluster.drop(link)
            raise
        return self._judge(decode_response_body(ApiKey.PRODUCE, VERSION, answer), waiting)

    def _request(
        self,
        partitions: Sequence[TopicPartition],
        waiting: Mapping[TopicPartition, deque[Unsent]],
        producer_id: int,
        epoch: int,
    ) -> bytes:
        transaction = self._transaction
        request: dict[str, list[tuple[int, bytes]]] = {}
        size = 0
        for at in partitions:
            unsent = waiting[at][0]
            if size and size + len(unsent.records) > REQUEST_BYTES_MAX:
                break
            size += len(unsent.records)
            sequence = self._sequences.get(at, 0) if producer_id >= 0 else -1
            sealed = unsent.sealed(
                producer_id, epoch, sequence, transactional=transaction is not None
            )
            request.setdefault(at.topic, []).append((at.partition, sealed))
        own = None if transaction is None else transaction.transactional_id
        return encode_produce(self._acks, int(self._timeout_s * 1000), request, own)

    def _judge(self, answer: Any, waiting: Mapping[TopicPartition, deque[Unsent]]) -> int:
        """Take acknowledged batches off; raise for the first that is not, once all are seen."""
        acknowledged = 0
        trouble: Transient | None = None
        for topic in answer.responses:
            for row in topic.partition_responses:
                at = TopicPartition(topic.name, int(row.index))
                try:
                    self._check(at, row, waiting[at][0])
                except Transient as error:
                    trouble = error
                    continue
                done = waiting[at].popleft()
                self._sequences[at] = self._sequences.get(at, 0) + done.record_count
                self.sent_records += done.record_count
                acknowledged += 1
        if trouble is not None and not acknowledged:
            raise trouble
        return acknowledged

    def _check(self, at: TopicPartition, row: Any, unsent: Unsent) -> None:
        code = row.error_code
        if code in (Code.none, Code.duplicate_sequence_number):
            return
        what = f"writing {unsent.record_count} records to {at}"
        if code in _TOO_LARGE:
            raise RequestRefused(
                f"{what}: a batch of {len(unsent.records)} bytes is larger than the topic takes;"
                " lower option kafka.batch.size, or raise the topic's max.message.bytes"
            )
        if code == Code.invalid_record:
            raise RequestRefused(f"{what} was refused: {row.error_message or 'invalid record'}")
        check_code(code, what)

    def _identity(self, link: KafkaLink) -> tuple[int, int]:
        """Return (producer id, epoch); without acks=all there is none, as in Kafka."""
        if self._transaction is not None:
            return self._transaction.identity()
        if self._producer is None and self._acks == _ALL:
            answer = link.ask(
                ApiKey.INIT_PRODUCER_ID,
                {"transactional_id": None, "transaction_timeout": 0},
                self._timeout_s,
                version=link.version(ApiKey.INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION),
            )
            check_code(answer.error_code, "asking for a producer id")
            self._producer = int(answer.producer_id), int(answer.producer_epoch)
        return self._producer or _NO_PRODUCER

    def _look_again(self, topics: set[str]) -> None:
        """Ask for leaders; that a topic is gone ends the task."""
        try:
            found = self._cluster.topics(sorted(topics))
        except BrokersUnreachable:
            return
        for topic in topics - found.keys():
            raise TopicMissing(f"topic {topic} no longer exists")
