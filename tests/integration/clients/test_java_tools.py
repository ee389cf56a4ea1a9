"""The Java client's console tools, unmodified, each run by its main class: those that end by
themselves in one JVM, members of groups, which are stopped, in JVMs of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ops.java import find_java
from tests.integration.clients import installed, traffic
from tests.integration.clients.kafka_tools import run
from tests.integration.clients.traffic import Received

TOOLS = "org.apache.kafka.tools"
API_VERSIONS = f"{TOOLS}.BrokerApiVersionsCommand"
TOPICS = f"{TOOLS}.TopicCommand"
CONSOLE_PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
CONSUMER_GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
ELECT = f"{TOOLS}.LeaderElectionCommand"
VERIFIABLE_PRODUCER = f"{TOOLS}.VerifiableProducer"


def command(main_class: str, arguments: Sequence[str]) -> list[str]:
    jars = installed.folder("java/lib")
    java = str(find_java().path)
    # A small heap and the fast-starting compiler: these programs live for seconds.
    options = ["-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [java, *options, "-cp", f"{jars}{os.sep}*", main_class, *arguments]


def _create(bootstrap_servers: str, topic: str) -> None:
    where = ["--bootstrap-server", bootstrap_servers, "--topic", topic]
    run(TOPICS, "--create", "--partitions", str(traffic.PARTITION_COUNT), *where)


def _publish(bootstrap_servers: str, topic: str, numbers: range, codec: str = "none") -> None:
    name, content = traffic.HEADER
    lines = (f"{name}:{content.decode()}\t{traffic.key(n)}|{traffic.value(n)}\n" for n in numbers)
    properties = ("parse.headers=true", "parse.key=true", "key.separator=|")
    run(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", bootstrap_servers, "--topic", topic),
        *("--compression-codec", codec),
        *(argument for p in properties for argument in ("--reader-property", p)),
        text="".join(lines),
    )


class _Member:
    """A console consumer that writes to a file; SIGTERM makes it commit and leave."""

    def __init__(
        self, bootstrap_servers: str, topic: str, group: str, path: Path, protocol: str = "classic"
    ) -> None:
        self._path = path
        # Members of the consumer protocol cannot choose their session timeout.
        settings = ["session.timeout.ms=10000"] if protocol == "classic" else []
        settings.append(f"group.protocol={protocol}")
        shown = ("partition", "offset", "headers", "key", "value")
        properties = [f"print.{name}=true" for name in shown]
        arguments = [
            *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--group", group),
            "--from-beginning",
            *(argument for p in settings for argument in ("--command-property", p)),
            *(argument for p in properties for argument in ("--formatter-property", p)),
        ]
        with path.open("w") as out, path.with_suffix(".log").open("w") as log:
            self._process = subprocess.Popen(
                command(CONSOLE_CONSUMER, arguments), stdout=out, stderr=log
            )

    def received(self) -> list[Received]:
        text = self._path.read_text()
        return [_parse(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)


def _parse(line: str) -> Received:
    """Read a line like `Partition:1\tOffset:7\torigin:quire test\tkey-3\tvalue-3`."""
    partition, offset, headers, key, value = line.split("\t")
    name, content = traffic.HEADER
    assert headers == f"{name}:{content.decode()}"
    return Received(
        int(partition.removeprefix("Partition:")), int(offset.removeprefix("Offset:")), key, value
    )


def _assignments(bootstrap_servers: str, group: str) -> list[int]:
    """Return how many partitions each member of the group has."""
    arguments = ("--describe", "--members", "--group", group)
    lines = run(CONSUMER_GROUPS, "--bootstrap-server", bootstrap_servers, *arguments).splitlines()
    table = [line.split() for line in lines if line.startswith(("GROUP", group))]
    column = table[0].index("#PARTITIONS") if table else 0
    return [int(row[column]) for row in table[1:]]


def test_broker_api_versions(bootstrap_servers: str) -> None:
    listing = run(API_VERSIONS, "--bootstrap-server", bootstrap_servers)
    for api in ("Produce(0)", "Fetch(1)", "Metadata(3)", "JoinGroup(11)", "InitProducerId(22)"):
        assert f"{api}: UNSUPPORTED" not in listing
        assert api in listing


def test_topics(bootstrap_servers: str, topic: str) -> None:
    where = ("--bootstrap-server", bootstrap_servers)
    _create(bootstrap_servers, topic)
    assert topic in run(TOPICS, "--list", *where).splitlines()
    described = run(TOPICS, "--describe", "--topic", topic, *where)
    assert f"PartitionCount: {traffic.PARTITION_COUNT}" in described
    assert described.count("Leader: none") == 0
    run(TOPICS, "--delete", "--topic", topic, *where)
    assert topic not in run(TOPICS, "--list", *where).splitlines()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_of_two_shares_and_a_restarted_group_goes_on(
    bootstrap_servers: str, topic: str, group: str, tmp_path: Path, protocol: str
) -> None:
    _create(bootstrap_servers, topic)
    members = [
        _Member(bootstrap_servers, topic, group, tmp_path / f"{number}.txt", protocol)
        for number in (1, 2)
    ]
    try:
        traffic.wait_for(
            lambda: _assignments(bootstrap_servers, group) == [2, 2],
            "two partitions for each of two members",
        )
        _publish(bootstrap_servers, topic, traffic.FIRST)
        traffic.wait_for(
            lambda: sum(len(m.received()) for m in members) >= len(traffic.FIRST), "records"
        )
    finally:
        for member in members:
            member.stop()
    received = [member.received() for member in members]
    assert all(received)
    traffic.check([*received[0], *received[1]], traffic.FIRST)

    _publish(bootstrap_servers, topic, traffic.SECOND)
    member = _Member(bootstrap_servers, topic, group, tmp_path / "3.txt", protocol)
    try:
        traffic.wait_for(lambda: len(member.received()) >= len(traffic.SECOND), "the rest")
    finally:
        member.stop()
    traffic.check(member.received(), traffic.SECOND)
    listing = run(CONSUMER_GROUPS, "--bootstrap-server", bootstrap_servers, "--list", "--type")
    assert [group, protocol.capitalize()] in [line.split() for line in listing.splitlines()]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back(
    bootstrap_servers: str, topic: str, group: str, tmp_path: Path, codec: str
) -> None:
    _create(bootstrap_servers, topic)
    _publish(bootstrap_servers, topic, traffic.FIRST, codec)
    member = _Member(bootstrap_servers, topic, group, tmp_path / "member.txt")
    try:
        traffic.wait_for(lambda: len(member.received()) >= len(traffic.FIRST), "records")
    finally:
        member.stop()
    traffic.check(member.received(), traffic.FIRST)


def test_verifiable_producer(bootstrap_servers: str, topic: str) -> None:
    _create(bootstrap_servers, topic)
    arguments = ("--topic", topic, "--max-messages", "1000", "--acks", "-1")
    events = [
        json.loads(line)
        for line in run(
            VERIFIABLE_PRODUCER, "--bootstrap-server", bootstrap_servers, *arguments
        ).splitlines()
    ]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert len({(event["partition"], event["offset"]) for event in sent}) == 1000
    assert {event["value"] for event in sent} == {str(n) for n in range(1000)}


def test_partitions_are_reassigned(bootstrap_servers: str, topic: str, tmp_path: Path) -> None:
    """Generate, execute and verify, as the tool's documentation has it."""
    where = ("--bootstrap-server", bootstrap_servers)
    _create(bootstrap_servers, topic)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    brokers = sorted(_brokers(bootstrap_servers))
    generated = run(
        REASSIGN, *where, "--generate", "--topics-to-move-json-file", str(topics),
        "--broker-list", ",".join(map(str, brokers)),
    )  # fmt: skip
    assert "Proposed partition reassignment configuration" in generated
    proposed = json.loads(generated.strip().splitlines()[-1])
    assert len(proposed["partitions"]) == traffic.PARTITION_COUNT
    for row in proposed["partitions"]:
        row["replicas"] = brokers[::-1]
        row["log_dirs"] = ["any"] * len(brokers)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(proposed))
    done = run(REASSIGN, *where, "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignments" in done
    verified = run(REASSIGN, *where, "--verify", "--reassignment-json-file", str(plan))
    assert verified.count("is completed.") == traffic.PARTITION_COUNT
    described = run(TOPICS, "--describe", "--topic", topic, *where)
    shown = ",".join(map(str, brokers[::-1]))
    assert described.count(f"Replicas: {shown}") == traffic.PARTITION_COUNT
    assert run(REASSIGN, *where, "--list").strip() == "No partition reassignments found."


def test_preferred_leaders_are_elected(bootstrap_servers: str, topic: str) -> None:
    where = ("--bootstrap-server", bootstrap_servers)
    _create(bootstrap_servers, topic)
    elected = run(
        ELECT, *where, "--election-type", "preferred", "--topic", topic, "--partition", "0"
    )
    assert f"Valid replica already elected for partitions {topic}-0" in elected
    run(ELECT, *where, "--election-type", "preferred", "--all-topic-partitions")


def _brokers(bootstrap_servers: str) -> list[int]:
    listing = run(API_VERSIONS, "--bootstrap-server", bootstrap_servers)
    return [int(found) for found in re.findall(r"\(id: (\d+) rack:", listing)]
