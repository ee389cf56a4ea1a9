"""Java's client of Kafka 3.9 beside that of 4.3, unmodified: what one writes the other reads.

Transactions of both are among those of all clients (`test_transactional_clients.py`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.java_programs import java_program
from tests.integration.clients.programs import received, step

OLD, NEW = "java-3.9", "java"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def _create(brokers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


@pytest.mark.parametrize(("writer", "reader"), [(OLD, NEW), (NEW, OLD)])
def test_one_reads_every_codec_of_the_other(
    bootstrap_servers: str, topic: str, writer: str, reader: str
) -> None:
    _create(bootstrap_servers, topic, 1)
    where = {"brokers": bootstrap_servers, "topic": topic}
    assert step(writer, "produce", first=0, end=200, codecs=CODECS, **where) is True
    traffic.check(received(step(reader, "records", count=200, **where)), range(200))


@contextmanager
def _member(client: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen(
        [*java_program(client, "Steps"), "group", json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield program
    finally:
        program.kill()
        program.wait()


def _committed(brokers: str, topic: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": group})
    asked = [TopicPartition(topic, p) for p in range(traffic.PARTITION_COUNT)]
    found = consumer.committed(asked, timeout=30)
    consumer.close()
    return sum(one.offset for one in found if one.offset > 0)


def _member_count(brokers: str, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": brokers})
    try:
        members = admin.describe_consumer_groups([group])[group].result(30).members
    except KafkaException as error:
        if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return 0  # librdkafka's consumers ask again by themselves, its admin client does not
    return sum(bool(one.assignment.topic_partitions) for one in members)


def test_both_share_a_group_and_the_old_one_looks_after_it(
    bootstrap_servers: str, topic: str, group: str, fresh_name: Callable[[str], str]
) -> None:
    _create(bootstrap_servers, topic, traffic.PARTITION_COUNT)
    where = {"brokers": bootstrap_servers, "topic": topic}
    with _member(OLD, group=group, **where) as old, _member(NEW, group=group, **where) as new:
        traffic.wait_for(lambda: _member_count(bootstrap_servers, group) == 2, "two members")
        step(NEW, "produce", first=0, end=200, codecs=["lz4"], **where)
        traffic.wait_for(
            lambda: _committed(bootstrap_servers, topic, group) == 200, "committed offsets"
        )
        answers = [member.communicate("\n", timeout=30)[0] for member in (old, new)]
    found = [received(json.loads(answer.splitlines()[-1])) for answer in answers]
    assert all(found)
    traffic.check([*found[0], *found[1]], range(200))

    asked = {"brokers": bootstrap_servers, "group": group, "source": topic, "partitions": 3}
    assert step(OLD, "admin", topic=fresh_name("made"), **asked) == {
        "partitions": 4,
        "configs": {"retention.ms": "3600000", "segment.bytes": "1048576"},
        "state": "Empty",
        "committed": 200,
        "exists": True,
    }
