"""Steps over connections that break, brokers that move, and brokers that know less."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as Code

from client.spark.brokers.kafka_cluster import KafkaCluster
from client.spark.brokers.kafka_link import LinkBroken
from client.spark.errors import BatchNotCommitted, RequestRefused
from client.spark.splits import TopicPartition
from client.spark.write.exactly_once import protocol
from client.spark.write.exactly_once.decision import Decision
from client.spark.write.exactly_once.protocol import Begun, Sink, begin, commit
from client.spark.write.exactly_once.transport import TaskWriting, run
from client.wire.kafka.apis import ApiKey
from tests.fakes.transactional_kafka import TransactionalKafka

SINK = Sink("sink", "out", 60_000)
AT = TopicPartition("out", 0)
QUERY = "q"


class FakeLink:
    def __init__(self, kafka: TransactionalKafka) -> None:
        self._kafka = kafka
        self.unknown: set[ApiKey] = set()
        self.broken = 0

    def offers(self, api: ApiKey) -> bool:
        return api not in self.unknown

    def version(self, _api: ApiKey, at_most: int) -> int:
        return at_most

    def ask(self, api: ApiKey, fields: Any, _timeout_s: float, *, version: int) -> Any:
        if self.broken:
            self.broken -= 1
            self._kafka.handle(api, version, fields)
            raise LinkBroken("reset")
        return self._kafka.handle(api, version, fields)


class FakeCluster(KafkaCluster):
    """One broker; `retry` is the real one, without its pauses."""

    def __init__(self, kafka: TransactionalKafka) -> None:
        super().__init__("127.0.0.1:1", 5_000)
        self.only = FakeLink(kafka)
        self.looked_up = 0

    def coordinator(self, key: str, kind: int) -> Any:
        self.looked_up += 1
        return self.only

    def every_link(self) -> list[Any]:
        return [self.only]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> TransactionalKafka:
    monkeypatch.setattr(time, "sleep", lambda _s: None)
    return TransactionalKafka({"out": 2})


@pytest.fixture
def cluster(kafka: TransactionalKafka) -> FakeCluster:
    return FakeCluster(kafka)


def written(cluster: FakeCluster, task: int) -> TaskWriting:
    writing = TaskWriting(SINK, task, cluster)
    writing.enrol([AT])
    return writing


def decision(batch_id: int, *writings: TaskWriting) -> Decision:
    return Decision(QUERY, batch_id, tuple(one.open for one in writings if one.open is not None))


def test_a_batch_from_begin_to_end(kafka: TransactionalKafka, cluster: FakeCluster) -> None:
    begun = run(begin(SINK, 0.0), cluster)
    assert begun.decided is None
    one, two = written(cluster, 0), written(cluster, 1)
    run(commit(SINK, begun, decision(0, one, two), 1.0), cluster)
    assert kafka.ids[one.transactional_id].state == "CompleteCommit"
    assert run(begin(SINK, 2.0), cluster).is_decided(QUERY, 0)


def test_lost_answers_and_passing_codes_are_asked_again(
    kafka: TransactionalKafka, cluster: FakeCluster
) -> None:
    cluster.only.broken = 1
    kafka.codes = [
        (ApiKey.INIT_PRODUCER_ID, Code.concurrent_transactions),
        (ApiKey.END_TXN, Code.not_coordinator),
        (ApiKey.OFFSET_FETCH, Code.unstable_offset_commit),
    ]
    begun = run(begin(SINK, 0.0), cluster)
    one = written(cluster, 0)
    run(commit(SINK, begun, decision(0, one), 1.0), cluster)
    assert kafka.ids[one.transactional_id].state == "CompleteCommit"


def test_brokers_that_cannot_list_or_describe_will_do(
    kafka: TransactionalKafka, cluster: FakeCluster
) -> None:
    cluster.only.unknown = {ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS}
    begun = run(begin(SINK, 0.0), cluster)
    one = written(cluster, 0)
    run(commit(SINK, begun, decision(0, one), 1.0), cluster)
    assert run(begin(SINK, 2.0), cluster).is_decided(QUERY, 0)


def test_a_refusal_that_no_step_expects_is_named(
    kafka: TransactionalKafka, cluster: FakeCluster
) -> None:
    kafka.codes = [(ApiKey.INIT_PRODUCER_ID, Code.invalid_transaction_timeout)]
    with pytest.raises(RequestRefused, match="INVALID_TRANSACTION_TIMEOUT"):
        run(begin(SINK, 0.0), cluster)


def test_left_overs_are_cleared_when_a_batch_begins(
    kafka: TransactionalKafka, cluster: FakeCluster
) -> None:
    """Those of this sink, and no others."""
    orphan = written(cluster, 0)
    other = TaskWriting(Sink("sink-2", "out", 60_000), 0, cluster)
    other.enrol([AT])
    run(begin(SINK, 0.0), cluster)
    assert kafka.ids[orphan.transactional_id].state == "Empty"
    assert kafka.ids[other.transactional_id].state == "Ongoing"


def test_a_batch_that_took_more_than_half_of_the_time_out_does_not_count(
    kafka: TransactionalKafka, cluster: FakeCluster
) -> None:
    begun = run(begin(SINK, 0.0), cluster)
    batch = decision(0, written(cluster, 0))
    with pytest.raises(BatchNotCommitted, match="transactionTimeoutMs"):
        run(commit(SINK, begun, batch, 30.1), cluster)
    assert not kafka.offsets
    run(commit(SINK, begun, batch, 29.9), cluster)


def test_another_checkpoint_s_batches_are_its_own(
    kafka: TransactionalKafka, cluster: FakeCluster
) -> None:
    """A new checkpoint counts its batches from 0 again, and they are not the old ones."""
    begun = run(begin(SINK, 0.0), cluster)
    run(commit(SINK, begun, decision(7, written(cluster, 0)), 1.0), cluster)
    begun = run(begin(SINK, 2.0), cluster)
    assert begun.is_decided(QUERY, 7) and begun.is_decided(QUERY, 0)
    assert not begun.is_decided("another", 0)
    fresh = decision(0, written(cluster, 0))._replace(query_id="another")
    run(commit(SINK, begun, fresh, 3.0), cluster)
    assert run(begin(SINK, 4.0), cluster).is_decided("another", 0)


def test_a_batch_without_rows_decides_nothing(
    kafka: TransactionalKafka, cluster: FakeCluster
) -> None:
    run(commit(SINK, Begun(1, 0, None, 0.0), decision(0), 1.0), cluster)
    assert not kafka.ids


def test_attempts_of_a_task_have_ids_of_their_own(cluster: FakeCluster) -> None:
    names = [written(cluster, 3).transactional_id for _ in range(protocol.SLOTS)]
    assert len(set(names)) == protocol.SLOTS
    assert all(SINK.is_task(name) for name in names)
    assert not SINK.is_task(SINK.ticket(3))
    assert not SINK.is_task(SINK.driver)
    assert not SINK.is_task("sink.2:0:0")
