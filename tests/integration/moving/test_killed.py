"""MirrorMaker is killed while it carries records to a secured Quire, exactly once.

Its settings are those of the handbook. What a reader of committed records finds on Quire is each
record once, in the order of its partition, though MirrorMaker ended with transactions open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from client.kafka_security import read_properties
from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.differential.kafka_node import KafkaNode
from tests.integration.moving.mirror_maker import (
    MirrorMaker,
    secured_settings_of_the_handbook,
    settings_of_the_handbook,
)

pytestmark = pytest.mark.timeout(400)

TOPIC, PARTITIONS, RECORDS = "orders", 2, 2_000
_MIRROR_S = 180.0
_QUICK = {
    "replication.factor": "1",  # one bookie
    "quire->kafka.enabled": "false",
    "kafka.consumer.max.poll.records": "20",  # in each transaction
    # A worker that was killed is out of its group after this.
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[str]:
    """Apache Kafka with all records."""
    node = KafkaNode(tmp_path / "kafka").start()
    try:
        brokers = f"127.0.0.1:{node.port}"
        admin = AdminClient({"bootstrap.servers": brokers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": brokers})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        yield brokers
    finally:
        node.kill()


@pytest.fixture
def quire(tmp_path: Path) -> Iterator[LocalCluster]:
    """Quire with TLS and logins."""
    with LocalCluster(tmp_path / "quire", bookies=1, brokers=1, flags=("--secure",)) as made:
        yield made


class Reader:
    """What is committed on Quire so far."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._consumer = Consumer({**settings, "group.id": "reader"})
        self._is_assigned = False
        self.found: dict[int, list[int]] = defaultdict(list)

    def has(self, count: int) -> bool:
        """Read on; tell whether so many records were read."""
        if not self._is_assigned:
            try:
                self._is_assigned = TOPIC in self._consumer.list_topics(timeout=10).topics
            except KafkaException:
                return False
            if self._is_assigned:
                places = [TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)]
                self._consumer.assign(places)
        for message in self._consumer.consume(500, 0.1):
            if message.error() is None:
                self.found[message.partition()].append(int(message.value()))
        return sum(map(len, self.found.values())) >= count

    def close(self) -> None:
        self._consumer.close()


def test_each_record_comes_once_though_mirror_maker_is_killed(
    kafka: str, quire: LocalCluster, tmp_path: Path
) -> None:
    login = read_properties(Path(quire.about["client_config"]).with_name("admin-java.properties"))
    addresses = {"kafka": kafka, "quire": quire.bootstrap_servers}
    settings = {
        **settings_of_the_handbook(addresses),
        **secured_settings_of_the_handbook(login),
        **_QUICK,
    }
    client = read_properties(Path(quire.about["client_config"]))
    reader = Reader({"bootstrap.servers": quire.bootstrap_servers, **client})
    mirror = MirrorMaker(tmp_path, settings)
    try:
        mirror.start()
        wait_until(lambda: reader.has(RECORDS // 10), "first records", _MIRROR_S)
        mirror.kill()
        reader.has(RECORDS)
        assert sum(map(len, reader.found.values())) < RECORDS, "it was done before it was killed"
        mirror.start()
        wait_until(lambda: reader.has(RECORDS), "all records", _MIRROR_S)
    finally:
        mirror.kill()
    assert not reader.has(RECORDS + 1)
    reader.close()
    assert reader.found == {p: [*range(p, RECORDS, PARTITIONS)] for p in range(PARTITIONS)}
