"""Sending batches until all are acknowledged, whatever leaders and connections do."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode as Code

from client.spark.brokers.kafka_cluster import PartitionLeader, TopicFacts
from client.spark.brokers.kafka_link import LinkBroken
from client.spark.errors import BrokersUnreachable, RequestRefused, TopicMissing
from client.spark.splits import TopicPartition
from client.spark.write.encode import Unsent, encode
from client.spark.write.task_producer import TaskProducer
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Codec, headers, records
from client.wire.kafka.codec import encode_body
from client.wire.kafka.produce import parse_request


class FakeBrokers:
    """Two brokers, both leaders of everything they are told to lead; a log of what they took."""

    def __init__(self, partition_count: int = 2) -> None:
        self.leaders = dict.fromkeys(range(partition_count), 1)
        self.known = dict(self.leaders)
        self.log: dict[int, list[tuple[int, int, int]]] = {}
        """Per partition: (producer id, base sequence, record count)."""
        self.values: dict[int, list[bytes]] = {}
        self.answers: list[dict[int, int] | str] = []
        """For each request to come: codes by partition, or 'lost before' or 'lost after'."""
        self.requests = 0
        self.exists = True

    # --- what a KafkaCluster offers -----------------------------------------------------

    def topics(self, names: list[str]) -> Mapping[str, TopicFacts]:
        if not self.exists:
            return {}
        self.known = dict(self.leaders)
        leaders = {index: PartitionLeader(one, 0) for index, one in self.leaders.items()}
        return {name: TopicFacts("id", False, leaders) for name in names}

    def leader(self, at: TopicPartition) -> PartitionLeader:
        return PartitionLeader(self.known.get(at.partition, -1), 0)

    def link(self, broker_id: int) -> FakeLink:
        return FakeLink(self, broker_id)

    def drop(self, link: FakeLink) -> None:
        return None


class FakeLink:
    def __init__(self, brokers: FakeBrokers, broker_id: int) -> None:
        self._brokers = brokers
        self._broker_id = broker_id

    def version(self, api: ApiKey, at_most: int) -> int:
        return at_most

    def ask(self, api: ApiKey, fields: Any, timeout_s: float, *, version: int) -> Any:
        assert api == ApiKey.INIT_PRODUCER_ID
        return SimpleNamespace(error_code=0, producer_id=77, producer_epoch=3)

    def ask_raw(self, api: ApiKey, body: bytes, timeout_s: float, version: int) -> memoryview:
        brokers = self._brokers
        brokers.requests += 1
        plan = brokers.answers.pop(0) if brokers.answers else {}
        if plan == "lost before":
            raise LinkBroken("reset")
        codes = plan if isinstance(plan, dict) else {}
        rows = [self._row(*batch, codes) for batch in self._batches(body, version)]
        if plan == "lost after":
            raise LinkBroken("reset")
        fields = {"responses": [{"name": "t", "partition_responses": rows}], "throttle_time": 0}
        return memoryview(encode_body(ApiKey.PRODUCE, version, fields))

    def _batches(self, body: bytes, version: int) -> list[tuple[int, bytes]]:
        (topic,) = parse_request(version, memoryview(body)).topics
        return [(index, bytes(batch or b"")) for index, batch in topic.partitions]

    def _row(self, index: int, batch: bytes, codes: Mapping[int, int]) -> dict[str, Any]:
        ((_at, header),) = headers(batch)
        code = codes.get(index, 0)
        log = self._brokers.log.setdefault(index, [])
        key = (int(header.producer_id), header.base_sequence, header.record_count)
        if not code and self._brokers.leaders[index] != self._broker_id:
            code = Code.not_leader_or_follower
        if not code and header.base_sequence >= 0 and key in log:
            code = Code.duplicate_sequence_number
        if not code:
            log.append(key)
            self._brokers.values.setdefault(index, []).extend(
                one.value or b"" for one in records(batch)
            )
        return {
            "index": index, "error_code": code, "base_offset": 0, "log_append_time": -1,
            "log_start_offset": 0, "record_errors": [], "error_message": None,
        }  # fmt: skip


def unsent(values: list[bytes], batch_bytes: int = 60) -> list[Unsent]:
    count = len(values)
    columns = [
        pa.nulls(count, pa.binary()), pa.array(values, pa.binary()), pa.nulls(count),
        pa.array([1] * count, pa.int64()),
    ]  # fmt: skip
    rows = pa.RecordBatch.from_arrays(columns, names=["key", "value", "headers", "timestamp"])
    return encode(rows, Codec.NONE, batch_bytes)


VALUES = {index: [b"%d-%d" % (index, at) for at in range(10)] for index in (0, 1)}
BATCHES = {TopicPartition("t", index): unsent(some) for index, some in VALUES.items()}


def producer(brokers: FakeBrokers, acks: int = -1) -> TaskProducer:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return TaskProducer(  # type: ignore[arg-type]
        brokers, acks, 60_000, now_s=lambda: now[0], sleep=sleep
    )


def test_batches_are_numbered_and_in_order() -> None:
    brokers = FakeBrokers()
    made = producer(brokers)
    made.send(BATCHES)
    assert brokers.values == VALUES
    assert made.sent_records == 20
    for log in brokers.log.values():
        assert len(log) > 2
        assert [sequence for _id, sequence, _count in log] == [
            sum(count for *_rest, count in log[:at]) for at in range(len(log))
        ]
    made.send({TopicPartition("t", 0): unsent([b"more"])})
    assert brokers.log[0][-1] == (77, 10, 1)


@pytest.mark.parametrize(
    "answers",
    [
        ["lost before"],
        ["lost after"],
        [{}, "lost after", "lost before", {}],
        [{0: Code.not_leader_or_follower}],
        [{0: Code.not_enough_replicas, 1: Code.request_timed_out}, {}, "lost after"],
        [{1: Code.unknown_topic_or_partition}],
    ],
)
def test_nothing_is_lost_and_nothing_stored_twice(answers: list[dict[int, int] | str]) -> None:
    brokers = FakeBrokers()
    brokers.answers = list(answers)
    made = producer(brokers)
    made.send(BATCHES)
    assert brokers.values == VALUES
    assert made.sent_records == 20


def test_a_leader_that_moved_is_looked_up() -> None:
    brokers = FakeBrokers()
    brokers.leaders[1] = 2
    producer(brokers).send(BATCHES)
    assert brokers.values == VALUES


def test_without_acknowledgements_of_all_there_is_no_producer_id() -> None:
    brokers = FakeBrokers()
    producer(brokers, acks=1).send(BATCHES)
    assert brokers.values == VALUES
    assert {one[:2] for log in brokers.log.values() for one in log} == {(-1, -1)}


@pytest.mark.parametrize(
    ("code", "part"),
    [
        (Code.message_too_large, "kafka.batch.size"),
        (Code.invalid_record, "writing . records to t-0 was refused: invalid record"),
        (Code.topic_authorization_failed, "TOPIC_AUTHORIZATION_FAILED"),
        (Code.out_of_order_sequence_number, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    ],
)
def test_refusals_end_the_task(code: int, part: str) -> None:
    brokers = FakeBrokers()
    brokers.answers = [{0: code}]
    with pytest.raises(RequestRefused, match=part):
        producer(brokers).send(BATCHES)


def test_a_broker_that_never_answers_ends_the_task() -> None:
    brokers = FakeBrokers()
    brokers.answers = ["lost before"] * 1000
    with pytest.raises(BrokersUnreachable, match=r"60 s \(kafka.delivery.timeout.ms\): reset"):
        producer(brokers).send(BATCHES)
    assert brokers.requests < 100


def test_topics_that_do_not_exist() -> None:
    brokers = FakeBrokers()
    brokers.exists = False
    with pytest.raises(TopicMissing, match="quire topic create t"):
        producer(brokers).partition_count("t")
    brokers.answers = ["lost before"]
    with pytest.raises(TopicMissing, match="topic t no longer exists"):
        producer(brokers).send(BATCHES)
