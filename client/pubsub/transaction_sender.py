"""Send the records of a transaction until all are acknowledged, or the transaction is spoilt.

Each leader has one request under way with one batch of each of its partitions, so the order within
a partition is that of the queue. In the first generation of transactions the coordinator is told
of a partition before anything is written there; in the second the partition does that itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.structs import TopicPartition as KafkaPartition

from client.pubsub.coordinators import PAUSE_S, TRANSACTION, Coordinators, NoAnswer
from client.pubsub.core import verdicts
from client.pubsub.core.transaction import State, TopicPartition, TransactionState
from client.pubsub.core.verdicts import Refused, Verdict, in_words, worst
from client.pubsub.errors import (
    ProducerFenced,
    TransactionAborted,
    TransactionError,
    TransactionRefused,
)
from client.pubsub.kafka_requests import KafkaRequest, Versions
from client.pubsub.record_queue import Batch, RecordQueue
from client.wire.kafka.apis import ApiKey

log = logging.getLogger(__name__)

_PRODUCE: Final = {False: Versions(3, 11), True: Versions(12, 12)}
"""By generation: version 12 adds its partitions to the transaction."""
_ADD_PARTITIONS: Final = Versions(0, 3)
_ALL: Final = -1
_PAUSE_S_MAX: Final = 1.0


class TransactionSender:
    """Empties the queue of one publisher, in a task of its own."""

    def __init__(
        self,
        client: AIOKafkaClient,
        coordinators: Coordinators,
        transactional_id: str,
        state: TransactionState,
        queue: RecordQueue,
        delivery_timeout_s: float,
    ) -> None:
        self._client = client
        self._coordinators = coordinators
        self._transactional_id = transactional_id
        self._state = state
        self._queue = queue
        self._timeout_s = delivery_timeout_s
        self._idle = asyncio.Event()
        self._idle.set()
        self.failure: TransactionError | None = None
        """Why the transaction cannot be committed."""
        self._task = asyncio.create_task(self._run(), name="transaction-sender")

    async def drained(self) -> None:
        """Wait until every record is acknowledged. Raises TransactionError."""
        while self._queue.first() and self.failure is None:
            await self._queue.changed()
        await self._idle.wait()
        if self.failure is not None:
            raise self.failure

    async def discard(self) -> None:
        """Drop what waits; return when nothing is on its way any more."""
        self._queue.clear()
        await self._idle.wait()
        self._queue.clear()
        if self._state.state is not State.DEAD:
            self.failure = None

    async def close(self) -> None:
        """End the task."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def fail(self, verdict: Verdict, why: str) -> TransactionError:
        """Note that the transaction, or the publisher, is done for; return what to raise."""
        error = error_of(verdict, self._transactional_id, why)
        if verdict in (Verdict.FENCED, Verdict.FATAL):
            self._state.die()
        else:
            self._state.spoil()
        if self.failure is None or self._state.state is State.DEAD:
            self.failure = error
        self._queue.clear()
        return error

    async def _run(self) -> None:
        while True:
            if not self._queue.first() or self.failure is not None:
                await self._queue.changed()
                continue
            self._idle.clear()
            try:
                await self._empty()
            except Refused as error:
                self.fail(error.verdict, str(error))
            except NoAnswer as error:
                self.fail(Verdict.ABORT, f"the coordinator does not answer: {error}")
            except IncompatibleBrokerVersion as error:
                self.fail(Verdict.FATAL, str(error))
            except Exception as error:
                # A mistake of ours: whoever waits for this task must hear of it.
                log.exception("pubsub.transaction_sender_failed")
                self.fail(Verdict.FATAL, f"sending failed: {error!r}")
            finally:
                self._idle.set()

    async def _empty(self) -> None:
        """Send until the queue is empty. Raises Refused, NoAnswer."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        pause_s = PAUSE_S
        while batches := self._queue.first():
            if not self._state.second_generation:
                await self._enrol(batches)
            trouble = await self._round(batches)
            if not trouble or self._queue.first() != batches:
                deadline_s = loop.time() + self._timeout_s
                pause_s = PAUSE_S
            if not trouble:
                continue
            if loop.time() + pause_s > deadline_s:
                raise Refused(Verdict.ABORT, -1, f"no acknowledgement in time: {trouble}")
            self._client.force_metadata_update()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _enrol(self, wanted: Iterable[TopicPartition]) -> None:
        """Tell the coordinator of partitions that it has not heard of. Raises Refused, NoAnswer."""
        partitions = self._state.enrolled.missing(wanted)
        if not partitions:
            return
        by_topic: dict[str, list[int]] = {}
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        identity = self._state.identity
        self._state.reaches_brokers()
        await self._coordinators.ask(
            (TRANSACTION, self._transactional_id),
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {
                "v3_and_below_transactional_id": self._transactional_id,
                "v3_and_below_producer_id": identity.producer_id,
                "v3_and_below_producer_epoch": identity.epoch,
                "v3_and_below_topics": [
                    {"name": topic, "partitions": some} for topic, some in by_topic.items()
                ],
            },
            _ADD_PARTITIONS,
            lambda fields: [
                row.partition_error_code
                for topic in fields.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ],
            verdicts.of_coordinator,
        )
        self._state.enrolled.add(partitions)

    async def _round(self, batches: Mapping[TopicPartition, Batch]) -> str:
        """Send the first batch of each partition to its leader; return what went wrong, if so.

        Raises Refused.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        trouble = ""
        for at in batches:
            leader = self._client.cluster.leader_for_partition(KafkaPartition(*at))
            if leader is None or leader < 0:
                trouble = f"{at.topic}-{at.partition} has no leader"
            else:
                by_leader.setdefault(leader, []).append(at)
        asked = [self._produce(leader, some, batches) for leader, some in by_leader.items()]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            trouble = outcome or trouble
        return trouble

    async def _produce(
        self, leader: int, some: list[TopicPartition], batches: Mapping[TopicPartition, Batch]
    ) -> str:
        state = self._state
        topics: dict[str, list[dict[str, Any]]] = {}
        for at in some:
            batch = batches[at]
            if batch.sealed is None:
                batch.seal(state.identity, state.take_sequence(at, batch.record_count))
            row = {"index": at.partition, "records": batch.sealed}
            topics.setdefault(at.topic, []).append(row)
        request = KafkaRequest(
            ApiKey.PRODUCE,
            {
                "transactional_id": self._transactional_id,
                "acks": _ALL,
                "timeout": int(self._timeout_s * 1000),
                "topic_data": [
                    {"name": topic, "partition_data": rows} for topic, rows in topics.items()
                ],
            },
            _PRODUCE[state.second_generation],
        )
        state.reaches_brokers()
        try:
            answer = await self._client.send(leader, request)
        except IncompatibleBrokerVersion:
            raise
        except (KafkaError, TimeoutError) as error:
            return str(error) or type(error).__name__
        found = {
            TopicPartition(topic.name, int(row.index)): row
            for topic in answer.fields.responses
            for row in topic.partition_responses
        }
        return self._judge({at: found[at] for at in some if at in found}, batches)

    def _judge(
        self, found: Mapping[TopicPartition, Any], batches: Mapping[TopicPartition, Batch]
    ) -> str:
        """Take acknowledged batches off the queue; return what went wrong, if so."""
        trouble = ""
        for at, row in found.items():
            code, verdict = worst([row.error_code], verdicts.of_produce)
            what = f"writing to {at.topic}-{at.partition}: {in_words(code)}"
            if verdict is Verdict.DONE:
                self._queue.acknowledged(at, batches[at])
            elif verdict in (Verdict.RETRY, Verdict.LOOK_UP):
                trouble = what
            else:
                raise Refused(verdict, code, what)
        return trouble


def error_of(verdict: Verdict, transactional_id: str, why: str) -> TransactionError:
    """Return what applications are told about an answer that is final."""
    if verdict is Verdict.FENCED:
        return ProducerFenced(
            f"another publisher with transactional id {transactional_id} took over ({why})"
        )
    if verdict is Verdict.FATAL:
        return TransactionRefused(f"transactional id {transactional_id}: {why}")
    return TransactionAborted(f"the transaction has to be aborted: {why}")
