"""Spark's hooks of the exactly-once sink, called as Spark calls them: pickled, and in processes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from client.spark.brokers.kafka_cluster import PartitionLeader, TopicFacts
from client.spark.errors import BatchTorn, SparkSourceError, TopicMissing
from client.spark.splits import TopicPartition
from client.spark.write.exactly_once import stream_writer as module
from client.spark.write.exactly_once.stream_writer import (
    ExactlyOnceStreamWriter,
    WrittenInTransaction,
)
from client.spark.write.writer_options import WriterOptions
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.produce import parse_request
from tests.fakes.transactional_kafka import TransactionalKafka
from tests.unit.client.spark.write.exactly_once.test_transport import FakeCluster, FakeLink

QUERY = "q"


class Link(FakeLink):
    """Takes Produce as the task producer sends it, too."""

    def ask_raw(self, api: ApiKey, body: bytes, _timeout_s: float, version: int) -> Any:
        assert api is ApiKey.PRODUCE
        request = parse_request(version, memoryview(body))
        fields = {
            "transactional_id": request.transactional_id,
            "topic_data": [
                {
                    "name": topic.topic,
                    "partition_data": [
                        {"index": index, "records": bytes(data or b"")}
                        for index, data in topic.partitions
                    ],
                }
                for topic in request.topics
            ],
        }
        return self._kafka.handle(api, version, fields)


class Cluster(FakeCluster):
    def __init__(self, kafka: TransactionalKafka) -> None:
        super().__init__(kafka)
        self.only = Link(kafka)
        self.exists = True

    def topics(self, names: Any) -> dict[str, TopicFacts]:
        found = [name for name in names if name in self.only._kafka.topics and self.exists]
        leaders = {index: PartitionLeader(1, 0) for index in range(2)}
        return {name: TopicFacts("", False, leaders) for name in found}

    def leader(self, at: TopicPartition) -> PartitionLeader:
        return PartitionLeader(1, 0)

    def link(self, broker_id: int) -> Any:
        return self.only


@pytest.fixture
def kafka() -> TransactionalKafka:
    return TransactionalKafka({"out": 2})


@pytest.fixture
def cluster(kafka: TransactionalKafka, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(kafka)
    monkeypatch.setattr(module, "shared", lambda *_: made)
    monkeypatch.setattr("client.spark.write.writer.shared", lambda *_: made)
    monkeypatch.setattr(
        "client.spark.write.task_producer.decode_response_body", lambda *given: given[-1]
    )
    return made


def writer(*, fail_on_data_loss: bool = True) -> ExactlyOnceStreamWriter:
    options = WriterOptions(
        "127.0.0.1:1",
        topic="out",
        sink_id="sink",
        progress_topic="out",
        fail_on_data_loss=fail_on_data_loss,
    )
    return ExactlyOnceStreamWriter(options)


def writer_by_column() -> ExactlyOnceStreamWriter:
    """Return one that column topic tells where a row goes."""
    options = WriterOptions("127.0.0.1:1", sink_id="sink", progress_topic="progress")
    return ExactlyOnceStreamWriter(options)


def on_executors(made: ExactlyOnceStreamWriter) -> ExactlyOnceStreamWriter:
    sent: ExactlyOnceStreamWriter = pickle.loads(pickle.dumps(made))
    return sent


def rows(*values: bytes) -> Iterator[pa.RecordBatch]:
    if values:
        yield pa.RecordBatch.from_pydict({"value": list(values)})


def in_task(monkeypatch: pytest.MonkeyPatch, task: int, batch: int | None) -> None:
    properties = {"sql.streaming.queryId": QUERY}
    if batch is not None:
        properties["streaming.sql.batchId"] = str(batch)
    context = SimpleNamespace(partitionId=lambda: task, getLocalProperty=properties.get)
    monkeypatch.setattr(module.TaskContext, "get", lambda: context)


def write(
    monkeypatch: pytest.MonkeyPatch, made: ExactlyOnceStreamWriter, batch: int, *values: bytes
) -> list[Any]:
    """Run a task per value, and one without rows; return their messages."""
    messages = []
    for task, value in enumerate([*values, None]):
        in_task(monkeypatch, task, batch)
        messages.append(made.write(rows() if value is None else rows(value)))
    return messages


def test_a_batch_begins_once_however_often_its_writer_is_pickled(
    kafka: TransactionalKafka, cluster: Cluster
) -> None:
    made = writer()
    assert not kafka.ids, "nothing is asked before"
    on_executors(made), on_executors(made)
    assert kafka.ids["sink:driver"].epoch == 0


def test_rows_are_visible_when_the_batch_is_committed(
    kafka: TransactionalKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = write(monkeypatch, on_executors(writer()), 0, b"a", b"b")
    assert messages[2].transaction is None
    assert not kafka.committed()
    writer().commit(messages, 0)
    assert sorted(kafka.committed(), key=str) == [b"a", b"b"]
    assert not kafka.open()


def test_a_batch_that_counts_is_run_through_and_not_written(
    kafka: TransactionalKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer().commit(write(monkeypatch, on_executors(writer()), 0, b"a"), 0)
    again = on_executors(writer())
    seen: list[bytes] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for some in rows(b"a"):
            seen.append(b"a")
            yield some

    in_task(monkeypatch, 0, 0)
    message = again.write(watched())
    assert (seen, message.record_count, message.transaction) == ([b"a"], 0, None)
    writer().commit([message], 0)
    assert kafka.committed() == [b"a"]


def test_a_task_that_fails_leaves_nothing_open(
    kafka: TransactionalKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = on_executors(writer())
    monkeypatch.setattr("client.spark.write.writer.GATHERED_BYTES", 1)

    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(b"a")
        raise KeyError

    in_task(monkeypatch, 0, 0)
    with pytest.raises(KeyError):
        made.write(failing())
    assert not kafka.open() and not kafka.committed()
    cluster.exists = False
    with pytest.raises(TopicMissing):
        made.write(rows(b"a"))


def test_an_abort_ends_what_the_tasks_have_open(
    kafka: TransactionalKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = write(monkeypatch, on_executors(writer()), 0, b"a")
    writer().abort([*messages, None], 0)
    assert not kafka.open() and not kafka.committed()


def test_an_abort_after_the_decision_changes_nothing(
    kafka: TransactionalKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = write(monkeypatch, on_executors(writer()), 0, b"a")
    writer().commit(messages, 0)
    writer().abort(messages, 0)
    assert kafka.committed() == [b"a"]


def test_rows_go_where_their_column_says_and_count_together(
    kafka: TransactionalKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("progress", "other"):
        kafka.add_topic(name, 2)
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"a", b"b", b"c"], "topic": ["out", "other", "out"]}
    )
    made = on_executors(writer_by_column())
    in_task(monkeypatch, 0, 0)
    message = made.write(iter([batch]))
    assert not kafka.committed()
    writer_by_column().commit([message], 0)
    assert sorted(kafka.committed("out"), key=str) == [b"a", b"c"]
    assert kafka.committed("other") == [b"b"]
    assert not kafka.committed("progress")
    assert ("sink", ("progress", 0)) in kafka.offsets
    again = on_executors(writer_by_column())
    assert again.write(iter([batch])).transaction is None, "the batch counts already"


def test_progress_needs_a_topic_that_exists(kafka: TransactionalKafka, cluster: Cluster) -> None:
    with pytest.raises(TopicMissing, match="progressTopic"):
        on_executors(writer_by_column())
    assert not kafka.ids, "nothing is begun"


def test_without_tasks_there_is_nothing_to_do(kafka: TransactionalKafka, cluster: Cluster) -> None:
    writer().commit([], 0)
    writer().abort([None], 0)
    assert not kafka.open() and not kafka.committed()


@pytest.mark.parametrize("fail", [True, False])
def test_a_torn_batch_is_an_error_or_a_warning(
    kafka: TransactionalKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fail: bool
) -> None:
    messages = write(monkeypatch, on_executors(writer()), 0, b"a", b"b")
    one = messages[0]
    assert isinstance(one, WrittenInTransaction) and one.transaction is not None
    cluster.only.unknown = {ApiKey.DESCRIBE_TRANSACTIONS}
    kafka.expire(f"sink:0:{one.transaction.slot}")
    if fail:
        with pytest.raises(BatchTorn, match=r"task 0 .*failOnDataLoss=false"):
            writer().commit(messages, 0)
    else:
        writer(fail_on_data_loss=False).commit(messages, 0)
    assert kafka.committed() == [b"b"]


def test_a_task_that_does_not_know_its_batch_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = on_executors(writer())
    in_task(monkeypatch, 0, None)
    with pytest.raises(SparkSourceError, match="which micro-batch"):
        made.write(rows(b"a"))
