"""@platformatic/kafka, unmodified: admin, idempotent producer, gzip, groups, partitions of keys."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.clients import installed, traffic
from tests.integration.clients.traffic import Received


def _step(name: str, **settings: Any) -> Any:
    script = installed.folder("kafkajs/node_modules").parent / "platformatic.mjs"
    done = subprocess.run(
        [installed.command("node"), str(script), name, json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=traffic.PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_group_goes_on_where_it_was(
    bootstrap_servers: str, topic: str, group: str, compression: str
) -> None:
    where = {"brokers": bootstrap_servers, "topic": topic}
    assert _step("create", partitions=traffic.PARTITION_COUNT, **where) is True
    for numbers in (traffic.FIRST, traffic.SECOND):
        messages = [{"key": traffic.key(n), "value": traffic.value(n)} for n in numbers]
        assert _step("publish", messages=messages, compression=compression, **where) == len(numbers)
        found = _step("group", group=group, count=len(numbers), **where)
        traffic.check([Received(**one) for one in found], numbers)


def test_keys_share_javas_partitions_only_when_asked_to(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    """By default half of them do with six partitions: see the handbook's page on clients."""
    where = {"brokers": bootstrap_servers, "topic": topic}
    _step("create", partitions=6, **where)
    keys = [f"key-{n}" for n in range(200)]
    for origin in ("default", "java"):
        messages = [{"key": key, "value": origin} for key in keys]
        _step("publish", messages=messages, likeJava=origin == "java", **where)
    like_java = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        like_java.produce(topic, "murmur2", key)
    assert like_java.flush(30) == 0
    found = _step("group", group=group, count=3 * len(keys), **where)
    places = {(one["value"], one["key"]): one["partition"] for one in found}
    same = [
        sum(places[origin, key] == places["murmur2", key] for key in keys)
        for origin in ("default", "java")
    ]
    assert same[1] == len(keys)
    assert 0.4 * len(keys) < same[0] < 0.7 * len(keys)
