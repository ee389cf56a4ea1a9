"""Produce (0), versions 3-11; 0-2 are advertised and refused.

Behaviour: each partition's batch is checked and given offsets in arrival order before the next
request of the connection is looked at; the answer leaves when every partition is confirmed or
has failed. acks 1 waits like acks -1, for the ledger's ack quorum: there is no weaker copy that
could be acknowledged. With acks 0 there is no answer, and an error closes the connection, the
only signal there is; the request still counts as unanswered until it is confirmed, which is what
holds a fast sender back.

Deviations from Kafka: versions 0-2 are advertised because old librdkafka takes their absence for
"no compression", and close the connection when used. A duplicate of a batch still under way is
answered with the original.

Errors that clients can turn into a new leader carry a hint from version 10 on: the wanted owner
and the last epoch known; clients ignore it unless the epoch is news to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.endpoints import node_endpoint
from broker.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicName,
    NotLeader,
    RequestTimedOut,
    UnsupportedCompression,
)
from broker.faults import Code, code_of, message_of
from broker.partition import Append, Partition
from broker.services import Call, Services
from client.errors import QuireError, RemoteProtocolError
from client.wire.kafka import produce as wire
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import response_head
from client.wire.kafka.produce import NodeEndpoint, PartitionResult, ProduceRequest
from client.wire.kafka.records import CODEC_MASK, Codec

if TYPE_CHECKING:
    from broker.dispatch import Channel

KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (0, wire.VERSION_MAX)

_ZSTD_FROM: Final = 7
_LEADER_HINT_FROM: Final = 10
_TIMED_OUT: Final = int(Code.request_timed_out)
_ATTRIBUTES_AT: Final = 22
"""Offset of the low attribute byte in a batch."""


def start(services: Services, call: Call, body: memoryview, channel: Channel, size: int) -> None:
    """Append everything in the request; answer when all of it is settled."""
    if call.version < wire.VERSION_MIN:
        raise RemoteProtocolError(f"Produce version {call.version} carries old message formats")
    request = wire.parse_request(call.version, body)
    _Produce(services, call, channel, size, request).begin(request)


_Row = tuple[int, Partition | None, Append | QuireError]
"""One partition of a request: its index, who leads it, and what becomes of its batch."""


class _Produce:
    """One request under way."""

    __slots__ = (
        "_acks",
        "_answered",
        "_call",
        "_channel",
        "_error",
        "_pending",
        "_services",
        "_slot",
        "_ticket",
        "_topics",
    )

    def __init__(
        self, services: Services, call: Call, channel: Channel, size: int, request: ProduceRequest
    ) -> None:
        self._services = services
        self._call = call
        self._channel = channel
        self._acks = request.acks
        self._slot = channel.open(KEY, size)
        self._topics: list[tuple[str, list[_Row]]] = []
        self._pending = 1
        """Appends that are not complete, and one for `begin` itself."""
        self._answered = False
        self._error: QuireError | None = None
        self._ticket = 0

    def begin(self, request: ProduceRequest) -> None:
        """Append every batch, in the order of the request."""
        on_done = self._on_done
        for name, partitions in request.topics:
            rows: list[_Row] = []
            self._topics.append((name, rows))
            for index, records in partitions:
                try:
                    leader, append = self._append(name, index, records)
                except QuireError as error:
                    rows.append((index, None, error))
                    continue
                rows.append((index, leader, append))
                self._pending += 1
                append.on_done(on_done)
        self._pending -= 1
        if not self._pending:
            self._answer()
            return
        services = self._services
        self._slot.split_s = services.metrics.now_s()
        timeout_ms = min(request.timeout_ms, services.config.produce_timeout_max_ms)
        self._ticket = services.deadlines.after(max(timeout_ms, 1) / 1000, self._answer)

    def _append(
        self, topic: str, index: int, records: memoryview | None
    ) -> tuple[Partition, Append]:
        if self._acks not in (-1, 0, 1):
            raise InvalidRequiredAcks(f"acks is {self._acks}")
        leader = self._services.partitions.leader(topic, index)
        if leader.topic.internal:
            raise InvalidTopicName(f"topic {topic!r} belongs to the brokers")
        if not records:
            raise InvalidRecord("there is no record batch")
        if (
            self._call.version < _ZSTD_FROM
            and len(records) > _ATTRIBUTES_AT
            and records[_ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD
        ):
            raise UnsupportedCompression("zstd needs version 7 of Produce")
        append = leader.append(records)
        record_count = append.end_offset - append.base_offset
        self._services.metrics.on_produced(topic, record_count, len(records))
        return leader, append

    def _on_done(self, _append: Append) -> None:
        self._pending -= 1
        if not self._pending and not self._answered:
            self._answer()

    def _result(self, name: str, row: _Row, version: int) -> PartitionResult:
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
                self._error = RequestTimedOut("the append was not confirmed in time")
                return PartitionResult(index, _TIMED_OUT)
        else:
            error = outcome
        code = code_of(error)
        self._count(code)
        self._error = error
        hint = None
        if version >= _LEADER_HINT_FROM and isinstance(error, NotLeader):
            hint = self._hint(name, index, error)
        return PartitionResult(index, code, -1, -1, start_offset, message_of(error), hint)

    def _count(self, code: int) -> None:
        errors = self._services.metrics.produce_errors
        errors[code] = errors.get(code, 0) + 1

    def _hint(self, name: str, index: int, error: NotLeader) -> tuple[int, int] | None:
        cluster = self._services.cluster
        topic = cluster.topics.get(name)
        if topic is None or error.leader is None or error.leader not in cluster.brokers:
            return None
        return error.leader, cluster.leader_epochs.get(topic, index)

    def _answer(self) -> None:
        """Answer with what is known: everything, or the deadline has come."""
        self._answered = True
        if self._ticket:
            self._services.deadlines.cancel(self._ticket)
        channel, call = self._channel, self._call
        version = call.version
        results = [
            (name, [self._result(name, row, version) for row in rows])
            for name, rows in self._topics
        ]
        if self._acks == 0:
            if self._error is not None:
                channel.fail(f"produce with acks 0 failed: {message_of(self._error)}")
            else:
                channel.answer(self._slot, ())
            return
        endpoints = () if self._error is None else self._endpoints(results)
        body = wire.build_response(version, results, endpoints)
        head = response_head(KEY, version, call.correlation_id, len(body))
        channel.answer(self._slot, (head, body))

    def _endpoints(
        self, topics: Sequence[tuple[str, Sequence[PartitionResult]]]
    ) -> list[NodeEndpoint]:
        if self._call.version < _LEADER_HINT_FROM:
            return []
        leaders = {
            result.leader[0]: None
            for _, results in topics
            for result in results
            if result.leader is not None
        }
        found = [
            broker for broker in self._services.cluster.brokers.values() if broker.id in leaders
        ]
        return [node_endpoint(self._services, broker, self._call.peer) for broker in found]
