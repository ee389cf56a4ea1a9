"""What clients send the moment a leader is named is taken, also with acks=0: nothing is lost.

Clients of other makers, unmodified: kafka-python and librdkafka with acks=0 right after a topic
was created, or was made by being named; a producer through a planned hand-over; the leaders of a
topic that gets more partitions; and how many log lines a client can cause.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PlainTopic
from kio.schema.errors import ErrorCode

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.integration.cluster import LocalCluster
from tests.integration.shell import shell_for

RECORD_COUNT = 450
PARTITION_COUNT = 3
ROUNDS = 4
ASKED = 2_000
"""Names that no topic can have, asked for in one request."""
LINES_MAX, WINDOW_S = 50, 10.0
"""So many lines that clients cause at will are logged in each such time (`client.node.logs`)."""


def read_all(cluster: LocalCluster, topic: str, wanted: int, partitions: int) -> list[bytes]:
    """Return the values of a topic: as many as wanted, or what there is after some seconds."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    until_s = time.monotonic() + 10
    while len(values) < wanted and time.monotonic() < until_s:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            values.append(message.value())
    consumer.close()
    return values


def numbered(topic: str) -> list[bytes]:
    return [f"{topic} {number}".encode() for number in range(RECORD_COUNT)]


def check(cluster: LocalCluster, topic: str, partitions: int) -> None:
    found = read_all(cluster, topic, RECORD_COUNT, partitions)
    assert len(found) == RECORD_COUNT, f"{RECORD_COUNT - len(found)} of {topic} were lost"
    assert sorted(found) == sorted(numbered(topic))
    log = "".join(cluster.node_log(f"broker-{index}") for index in (0, 1))
    assert "produce with acks 0 failed" not in log


@pytest.mark.parametrize("created", [True, False], ids=["created", "named"])
def test_kafka_python_loses_nothing_with_acks_0(cluster: LocalCluster, created: bool) -> None:
    servers = cluster.bootstrap_servers
    admin = KafkaAdminClient(bootstrap_servers=servers)
    for number in range(ROUNDS):
        topic = f"first-python-{created}-{number}"
        producer = KafkaProducer(
            bootstrap_servers=servers, acks=0, enable_idempotence=False, linger_ms=0
        )
        if created:
            admin.create_topics([PlainTopic(topic, PARTITION_COUNT, -1)])
        sent = [
            producer.send(topic, value, partition=at % PARTITION_COUNT if created else 0)
            for at, value in enumerate(numbered(topic))
        ]
        producer.flush(30)
        assert [future.exception for future in sent if future.failed()] == []
        producer.close()
        check(cluster, topic, PARTITION_COUNT if created else 1)
    admin.close()


@pytest.mark.parametrize("created", [True, False], ids=["created", "named"])
def test_librdkafka_loses_nothing_with_acks_0(cluster: LocalCluster, created: bool) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
    admin = AdminClient(settings)
    for number in range(ROUNDS):
        topic = f"first-rdkafka-{created}-{number}"
        errors: list[KafkaError] = []
        producer = Producer({**settings, "acks": 0, "linger.ms": 0})
        if created:
            for future in admin.create_topics([NewTopic(topic, PARTITION_COUNT)]).values():
                future.result(30)
        for at, value in enumerate(numbered(topic)):
            producer.produce(
                topic,
                value,
                partition=at % PARTITION_COUNT if created else 0,
                on_delivery=lambda error, _, errors=errors: errors.append(error),
            )
        assert producer.flush(30) == 0
        assert [error for error in errors if error is not None] == []
        check(cluster, topic, PARTITION_COUNT if created else 1)


def test_a_planned_hand_over_fails_no_record(
    start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster = start_cluster()
    shell = shell_for(cluster, tmp_path)
    settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
    topic = "handed-over"
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic(topic, 8)]).values():
        future.result(30)
    outcomes: list[tuple[float, KafkaError | None]] = []
    producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 1})

    def send(seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            sent_s = time.monotonic()
            producer.produce(
                topic,
                b"%d" % len(outcomes),
                on_delivery=lambda error, _, s=sent_s: outcomes.append(
                    (time.monotonic() - s, error)
                ),
            )
            producer.poll(0.002)

    send(1.0)
    shell.quick("quire broker unload 1 --no-wait")
    send(3.0)
    shell.quick("quire broker load 1")
    send(3.0)
    assert producer.flush(30) == 0
    assert [error for _, error in outcomes if error is not None] == []
    assert len(read_all(cluster, topic, len(outcomes), 8)) == len(outcomes)
    assert max(seconds for seconds, _ in outcomes) < 3.0


def leaders(cluster: LocalCluster, topic: str) -> list[tuple[int, int, int]]:
    """Return (partition, leader, leader epoch) as the admin API tells them."""
    port = cluster.about["brokers"][0]["admin"]
    url = f"http://127.0.0.1:{port}/admin/v1/topics/{topic}/partitions?limit=100"
    with urllib.request.urlopen(url, timeout=30) as answer:
        rows = json.load(answer)["items"]
    return sorted((row["partition"], row["leader"], row["leader_epoch"]) for row in rows)


def test_partitions_that_are_added_move_no_leader(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = start_cluster(brokers=3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topics = {f"growing-{number}": 2 + number for number in range(4)}
    made = admin.create_topics([NewTopic(name, count) for name, count in topics.items()])
    for future in made.values():
        future.result(30)
    written = dict.fromkeys(topics, 0)
    for more in (3, 7):
        before = {}
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for name, count in topics.items():
            for index in range(count):
                producer.produce(name, b"x", partition=index)
            producer.flush(30)
            written[name] += count
            assert len(read_all(cluster, name, written[name], count)) == written[name]
            before[name] = leaders(cluster, name)
        grown = [NewPartitions(name, count + more) for name, count in topics.items()]
        for future in admin.create_partitions(grown).values():
            future.result(30)
        time.sleep(1.0)  # what would move would have moved by then
        for name, count in topics.items():
            after = leaders(cluster, name)
            assert after[:count] == before[name]
            assert len(after) == count + more
            topics[name] = count + more


async def test_a_client_that_asks_for_wrong_names_fills_no_log(cluster: LocalCluster) -> None:
    def lines() -> int:
        return cluster.node_log("broker-0").count("topic.not_created")

    before = lines()
    client = await WireClient.connect(cluster.about["brokers"][0]["kafka"])
    began_s = time.monotonic()
    wanted = [{"name": f"no/topic{number}"} for number in range(ASKED)]
    client.send(ApiKey.METADATA, 4, topics=wanted, allow_auto_topic_creation=True)
    answer = await client.receive(60)
    await client.close()
    assert [row.error_code for row in answer.topics] == [ErrorCode.invalid_topic_exception] * ASKED
    windows = int((time.monotonic() - began_s) / WINDOW_S) + 2
    assert 0 < lines() - before <= windows * LINES_MAX < ASKED
