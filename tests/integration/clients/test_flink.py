"""Flink's Kafka connector, unmodified: a job copies a topic, read to its end, exactly once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients.java_programs import java_program
from tests.integration.clients.transactors import Librdkafka, Place

PARTITIONS = 2
RECORDS = 500
_OPENED = ["java.base/java.util", "java.base/java.lang", "java.base/java.time"]
"""Packages of Java that Flink's serializers look into."""


def test_a_job_copies_a_topic_exactly_once(
    bootstrap_servers: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, name = fresh_name("source"), fresh_name("target"), fresh_name("job")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics([NewTopic(t, PARTITIONS) for t in (source, target)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(source, str(number), str(number))
    assert producer.flush(30) == 0
    java, *options, program = java_program("flink", "CopyTopic")
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    with (tmp_path / "flink.log").open("w") as log:
        subprocess.run(
            [java, *opened, *options, program, bootstrap_servers, source, target, name],
            stdout=log,
            stderr=log,
            timeout=120,
            check=True,
        )
    place = Place(bootstrap_servers, target, name, "", source, RECORDS, PARTITIONS)
    assert sorted(map(int, Librdkafka().read(place))) == list(range(RECORDS))
