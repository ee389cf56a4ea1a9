"""Builds the answer to a Produce request, partition by partition, in steps if there are many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.errors import InvalidRecord, NotLeader, RequestTimedOut
from broker.faults import Code, code_of, message_of
from broker.front.endpoints import leader_endpoints
from broker.front.services import Call, Services
from broker.partition.partition import Append, Partition
from client.errors import QuireError
from client.wire.kafka import produce as wire
from client.wire.kafka.answer_parts import NodeEndpoint, Topic
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import Buffer, response_head
from client.wire.kafka.produce import PartitionResult
from client.wire.steps import STEP_ITEMS, ItemCount, Steps

_LEADER_HINT_FROM: Final = 10
_ABORTABLE_FROM: Final = 11
"""The version from which clients know TRANSACTION_ABORTABLE."""
_ABORTABLE: Final = int(Code.transaction_abortable)
_TIMED_OUT: Final = int(Code.request_timed_out)

Row = tuple[int, Partition | None, Append | QuireError]
"""One partition of a request: its index, who leads it, and what becomes of its batch."""

Results = Sequence[tuple[Topic, Sequence[PartitionResult]]]
"""By topic."""


def stored_answer(
    call: Call, topics: Sequence[tuple[Topic, Sequence[Row]]]
) -> tuple[Buffer, ...] | None:
    """Return the answer to a request whose batches are all stored, as most are, and not many;
    None for any other. It costs a fifth of the general way."""
    if len(topics) != 1 or len(topics[0][1]) != 1:
        return _all_stored_answer(call, topics)
    topic, ((index, leader, outcome),) = topics[0]
    if leader is None or type(outcome) is not Append:
        return None
    if not outcome.completed or outcome.error is not None:
        return None
    body = wire.stored_response(
        call.version,
        topic,
        index,
        outcome.base_offset,
        outcome.log_append_time_ms,
        leader.log_start_offset,
    )
    return response_head(ApiKey.PRODUCE, call.version, call.correlation_id, len(body)), body


def _all_stored_answer(
    call: Call, topics: Sequence[tuple[Topic, Sequence[Row]]]
) -> tuple[Buffer, ...] | None:
    found: list[tuple[Topic, list[tuple[int, int, int, int]]]] = []
    left = STEP_ITEMS - len(topics)
    for topic, rows in topics:
        left -= len(rows)
        if left < 0:
            return None
        results: list[tuple[int, int, int, int]] = []
        found.append((topic, results))
        for index, leader, outcome in rows:
            if leader is None or type(outcome) is not Append or not outcome.completed:
                return None
            if outcome.error is not None:
                return None
            base, set_ms = outcome.base_offset, outcome.log_append_time_ms
            results.append((index, base, set_ms, leader.log_start_offset))
    body = wire.all_stored_response(call.version, found)
    return response_head(ApiKey.PRODUCE, call.version, call.correlation_id, len(body)), body


def frameless(error: QuireError) -> QuireError:
    """Return an error that keeps none of the frames that it, and its causes, were raised through.

    They have the rows that it is put into: cycles, which in a request of very many refused batches
    are so many objects that the collector of cycles would stop the loop for them.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


class ProduceAnswer:
    """The answer to one request."""

    def __init__(self, services: Services, call: Call) -> None:
        self._services = services
        self._call = call
        self.error: QuireError | None = None
        """The last that was found."""

    def results(self, topics: Sequence[tuple[Topic, Sequence[Row]]]) -> Steps[Results]:
        """Say what became of every batch by now."""
        version = self._call.version
        items = ItemCount()
        results: list[tuple[Topic, list[PartitionResult]]] = []
        for topic, rows in topics:
            found: list[PartitionResult] = []
            results.append((topic, found))
            for row in rows:
                if items.is_step_over():
                    yield
                found.append(self._result(topic, row, version))
        return results

    def encode(self, results: Results, throttle_ms: int = 0) -> Steps[tuple[Buffer, ...]]:
        """Return the frame."""
        call = self._call
        endpoints = () if self.error is None else self._endpoints(results)
        body = yield from wire.response_steps(call.version, results, endpoints, throttle_ms)
        return response_head(ApiKey.PRODUCE, call.version, call.correlation_id, len(body)), body

    def _result(self, topic: Topic, row: Row, version: int) -> PartitionResult:
        """Say what became of a batch by now."""
        index, leader, outcome = row
        start_offset = -1 if leader is None else leader.log_start_offset
        if isinstance(outcome, Append):
            if outcome.completed and outcome.error is None:
                return PartitionResult(
                    index, 0, outcome.base_offset, outcome.log_append_time_ms, start_offset
                )
            error: QuireError | None = outcome.error
            if error is None:
                self._count(_TIMED_OUT)
                self.error = RequestTimedOut("the append was not confirmed in time")
                return PartitionResult(index, _TIMED_OUT)
        else:
            error = outcome
        code = code_of(error)
        if code == _ABORTABLE and version < _ABORTABLE_FROM:
            code = int(Code.invalid_txn_state)
        self._count(code)
        self.error = error
        hint = None
        if version >= _LEADER_HINT_FROM and isinstance(error, NotLeader):
            hint = self._hint(topic, index, error)
        to_blame = error.record_indexes if isinstance(error, InvalidRecord) else ()
        return PartitionResult(index, code, -1, -1, start_offset, message_of(error), hint, to_blame)

    def _count(self, code: int) -> None:
        errors = self._services.metrics.produce_errors
        errors[code] = errors.get(code, 0) + 1

    def _hint(self, named: Topic, index: int, error: NotLeader) -> tuple[int, int] | None:
        cluster = self._services.cluster
        if isinstance(named, str):
            topic = cluster.topics.get(named)
        else:
            topic = cluster.topic_by_id.get(named)
        if topic is None or error.leader is None or error.leader not in cluster.brokers:
            return None
        return error.leader, cluster.leader_epochs.get(topic, index)

    def _endpoints(self, topics: Results) -> list[NodeEndpoint]:
        if self._call.version < _LEADER_HINT_FROM:
            return []
        leaders = {
            result.leader[0]: None
            for _, results in topics
            for result in results
            if result.leader is not None
        }
        return leader_endpoints(self._services, leaders, self._call.peer)
