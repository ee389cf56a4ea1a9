"""kaskade, unmodified, in a terminal: a user interface for Kafka that a registry has."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.integration.clients.installed import INSTALL
from tests.integration.cluster import ROOT, LocalCluster
from tests.integration.schema_registry import RegistryProcess
from tests.integration.terminal import Terminal

PROGRAM = ROOT / "build" / "kaskade" / "bin" / "kaskade"
PAGE = 25
"""Records that it shows at a time: with so many it waits for no more."""
ENTER = "\r"
CONTROL_D, CONTROL_S = "\x04", "\x13"
PARTITIONS, RECORDS = 3, 30
COMMITTED = (1, 2, 3)
"""Of each partition."""
SCHEMA = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}

Start = Callable[..., Terminal]


@pytest.fixture
def start(cluster: LocalCluster, tmp_path: Path) -> Iterator[Start]:
    """Start it on the shared cluster; whatever was started ends with the test."""
    assert PROGRAM.is_file(), f"{PROGRAM} is not there: {INSTALL}"
    started: list[Terminal] = []
    environ = {**os.environ, "HOME": str(tmp_path), "TEXTUAL_ANIMATIONS": "none"}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "KASKADE_SETTINGS", "NO_COLOR"):
        environ.pop(name, None)

    def begin(mode: str, *options: str) -> Terminal:
        command = [str(PROGRAM), mode, "-b", cluster.bootstrap_servers, *options]
        started.append(Terminal(command, environ, rows=50, columns=200))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def _create(cluster: LocalCluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(30)


def _publish(cluster: LocalCluster, topic: str, records: list[tuple[str, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number, (key, value) in enumerate(records):
        producer.produce(topic, value, key, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.fixture
def group() -> str:
    """A name that the tables of the screen have room for."""
    return f"readers-{os.getpid()}"


@pytest.fixture
def member(cluster: LocalCluster, topic: str, group: str) -> Iterator[Consumer]:
    """The only member of a group that has read some of a topic and stays."""
    _create(cluster, topic, PARTITIONS)
    _publish(cluster, topic, [(f"k{number}", b"v") for number in range(RECORDS)])
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "client.id": "somebody",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None
    assert message.error() is None, message.error()
    offsets = [TopicPartition(topic, *each) for each in enumerate(COMMITTED)]
    consumer.commit(offsets=offsets, asynchronous=False)
    yield consumer
    consumer.close()


def test_admin_shows_topics_partitions_groups_members_and_lag(
    start: Start, topic: str, group: str, member: Consumer
) -> None:
    lag = RECORDS - sum(COMMITTED)
    each = RECORDS // PARTITIONS
    screen = start("admin", "--refresh-interval", "5")
    _filter(screen, topic, 1)
    screen.shows(rf"{topic} +{PARTITIONS} +2 +2 +1 +1 +≈{RECORDS} +≈{lag}\b")
    screen.press(ENTER)
    screen.shows(rf"Topic Details.*\[{topic}\]")
    for partition in range(PARTITIONS):
        screen.shows(rf"\b{partition} +\d+ +0 +{each} +{each} +\[[\d, ]+\] +\[[\d, ]+\]")
    screen.press("l")
    screen.shows(r"retention\.ms +\d+")
    screen.press("l")
    screen.shows(rf"{group} .* stable +range +{PARTITIONS} +1 +{lag}\b")
    screen.press("l")
    for partition, offset in enumerate(COMMITTED):
        screen.shows(rf"{group} +{partition} +{offset} +{each} +{each - offset}\b")
    screen.press("l")
    screen.shows(rf"{group} +somebody +\S+ .*\[0, 1, 2\]")
    assert member.assignment()


def test_admin_creates_edits_and_deletes_a_topic(start: Start, cluster: LocalCluster) -> None:
    made = f"made-{os.getpid()}"
    screen = start("admin", "--refresh-interval", "5")
    _filter(screen, made, 0)
    screen.press("n")
    screen.shows(r"─ Create Topic ─")
    _fill(screen, made)
    screen.press_tab("Partitions")
    _fill(screen, "2")
    screen.press_tab("Retention (ms)")
    _fill(screen, "7200000")
    screen.press(CONTROL_S)
    screen.shows(rf"{made} +2 +2 +2 +0 +0 +≈0 +≈0\b")
    assert _config(cluster, made)["retention.ms"] == "7200000"

    screen.press("e")
    screen.shows(rf"─ Edit Topic \[{made}\] ─")
    _fill(screen, "4")
    screen.press_tab("Retention (ms)")
    _fill(screen, "3600000")
    screen.press(CONTROL_S)
    screen.shows(rf"{made} +4 +2 +2 ")
    assert _config(cluster, made)["retention.ms"] == "3600000"

    _publish(cluster, made, [(f"k{number}", b"v") for number in range(RECORDS)])
    screen.press(CONTROL_D)
    screen.shows(rf"─ Delete Topic \[{made}\] ─")
    _fill(screen, made)
    screen.press(ENTER)
    screen.shows(rf"Topics +\[\*{made}\*\]\[0\]")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    assert made not in admin.list_topics(timeout=30).topics
    alarming = [
        line for number in range(2) for line in cluster.node_log(f"broker-{number}").splitlines()
        if made in line and re.search("WARNING|ERROR", line)
    ]  # fmt: skip
    assert alarming == []


@pytest.mark.parametrize("kind", ["string", "json", "registry"])
def test_consumer_shows_records(
    start: Start, cluster: LocalCluster, topic: str, kind: str, tmp_path: Path
) -> None:
    _create(cluster, topic, PARTITIONS)
    options = ["-t", topic, "--earliest", "-k", "string", "-v", kind]
    if kind == "registry":
        registry = RegistryProcess(cluster, f"schemas-{topic}")
        options += ["--registry", f"url={registry.url}"]
        encode: Any = AvroSerializer(registry.client, json.dumps(SCHEMA))
    else:
        registry = None
        encode = _plain
    where = SerializationContext(topic, MessageField.VALUE)
    users = [{"name": f"user {number}", "age": number} for number in range(PAGE)]
    records = [(f"key-{number}", encode(user, where)) for number, user in enumerate(users)]
    try:
        _publish(cluster, topic, records)
        screen = start("consumer", "--timeout", "consumer.idle=60", *options)
        screen.shows(rf"Records +\[{topic}\]\[{PAGE}\]")
        for number in range(PAGE):
            offset, partition = divmod(number, PARTITIONS)
            value = screen.shows(
                rf"key-{number} +(\{{.*\}}) +\d.* +{partition} +{offset} +0\b"
            )[1]  # fmt: skip
            assert ast.literal_eval(value) == users[number]
    finally:
        if registry is not None:
            registry.end()


def _plain(user: dict[str, object], _where: SerializationContext) -> bytes:
    return json.dumps(user).encode()


def _filter(screen: Terminal, topic: str, found: int) -> None:
    """Show one topic alone: of the many of the shared cluster it may not be on the screen."""
    screen.shows(r"Admin Mode · Updated")
    screen.press("/")
    screen.shows(r"─ Filter Topics ─")
    _fill(screen, topic)
    screen.press(ENTER)
    screen.shows(rf"Topics +\[\*{topic}\*\]\[{found}\]")


def _fill(screen: Terminal, text: str) -> None:
    """Type into the field that was just marked, which replaces what it has; wait until it is there.

    Keys that are no text are slower than those that are, so none is sent along.
    """
    screen.press(text)
    screen.shows(rf"│ *{text} *│")


def _config(cluster: LocalCluster, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([asked])[asked].result(30)
    return {name: entry.value for name, entry in found.items()}
