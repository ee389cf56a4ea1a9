"""Every command-line tool of Apache Kafka's that talks to brokers, beside Apache Kafka.

Compared is what they print, once addresses, times, sizes and ids are taken out, and the exit code.
What differs has a reason in `EXPLAINED`, or fails; so does a reason that nothing needs any more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.clients import installed
from tests.integration.cluster import LocalCluster
from tests.integration.differential import log_files, tools
from tests.integration.differential.kafka_node import KafkaNode

EXPLAINED: Mapping[str, tuple[str, str]] = {
    "kafka-topics --create": (r"[Tt]opic 'orders' already exists", "our own words"),
    "kafka-topics --describe": (
        r"Configs:|PartitionCount",
        "Kafka writes min.insync.replicas down with each topic; here it is the ack quorum's",
    ),
    "kafka-configs --describe topics": (
        r"retention\.ms=|cleanup\.policy=",
        "the same settings; the defaults among their synonyms have the topic's names here",
    ),
    "kafka-metadata-quorum describe": (
        r".*",
        "there is no quorum of controllers: metadata is in ZooKeeper, which has tools of its own",
    ),
    "kafka-features describe": (
        r"^Feature: ",
        "features of what is not here: metadata logs of KRaft, share and streams groups",
    ),
    "kafka-cluster unregister": (r"BrokerIdNotRegistered", "our own words"),
    "kafka-broker-api-versions": (r"\(N\): ", "the versions are compared by test_beside_kafka.py"),
    "kafka-acls --list": (r"SecurityDisabledException", "our own words"),
}
"""Command -> which lines may differ, and why."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Apache Kafka and Quire, one broker each."""
    folder = tmp_path_factory.mktemp("tools")
    node = KafkaNode(folder / "kafka")
    try:
        node.start()
        environ = {"QUIRE_BROKER_OFFSETS_TOPIC_PARTITIONS": "4"}
        with LocalCluster(folder / "quire", bookies=1, brokers=1, environ=environ) as quire:
            yield f"127.0.0.1:{node.port}", quire.bootstrap_servers
    finally:
        node.kill()


def name(command: tools.Command) -> str:
    """Return what a row of `EXPLAINED` calls a command."""
    words = [
        one for one in command.arguments.split() if one not in ("--bootstrap-server", "SERVER")
    ]
    kind = " topics" if command.script == "kafka-configs" and "topics" in words else ""
    return " ".join([command.script, *words[:1]]) + kind


@pytest.mark.timeout(900)
def test_tools_say_the_same(servers: tuple[str, str], tmp_path: Path) -> None:
    tools.write_files(tmp_path)
    differences: list[str] = []
    needed: set[str] = set()
    with (
        concurrent.futures.ThreadPoolExecutor(2) as pool,
        tools.Tools(servers[0], tmp_path) as at_kafka,
        tools.Tools(servers[1], tmp_path) as at_quire,
    ):
        for command in tools.COMMANDS:
            theirs, ours = pool.map(lambda at, c=command: at.answer(c), (at_kafka, at_quire))
            if theirs == ours:
                continue
            pattern, _ = EXPLAINED.get(name(command), ("(?!)", ""))
            unexplained = [one for one in theirs.lines ^ ours.lines if not re.search(pattern, one)]
            if unexplained or (theirs.exit_code != ours.exit_code and pattern != r".*"):
                differences.append(
                    f"{name(command)}: exit codes {theirs.exit_code} and {ours.exit_code}\n"
                    + "\n".join(
                        f"  {'K' if one in theirs.lines else 'Q'} {one}" for one in unexplained
                    )
                )
            needed.add(name(command))
    assert differences == [], "\n".join(differences)
    assert needed == set(EXPLAINED), "a reason that nothing needs any more"


async def test_what_is_sent_is_a_log_file(servers: tuple[str, str], tmp_path: Path) -> None:
    """kafka-dump-log finds the same batches, records and markers in what both brokers send."""
    found, topic = [], f"dumped-{tmp_path.name}"
    for at in servers:
        await log_files.fill(at, topic)
        async with asyncio.timeout(60):
            data = await log_files.fetch(at, topic)
        found.append(log_files.dump(data, tmp_path))
    theirs, ours = found
    assert ours == theirs
    batches = [line for line in ours if line.startswith("baseOffset:")]
    assert len(batches) == log_files.BATCHES
    assert all("isvalid: true" in line for line in batches)
    assert sum("endTxnMarker: COMMIT" in line for line in ours) == 1
    assert sum("endTxnMarker: ABORT" in line for line in ours) == 1


NOT_RUN: Mapping[str, str] = {
    "ReplicaVerificationTool": "reads as a replica of a partition does; leaving Kafka",
    "JmxTool": "asks Java's machine, not brokers",
    "ConnectPluginPath": "looks at files",
    "DumpLogSegments": "reads files: above, of what brokers send",
    "OAuthCompatibilityTool": "asks a provider of tokens, not brokers",
    "TransactionalMessageCopier": "in tests/integration/clients/test_transactions.py",
    "ShareConsumerPerformance": "measures",
    "VerifiableShareConsumer": "the consumer of tests/integration/clients/test_java_share.py",
    "ConsoleShareConsumer": "in tests/integration/clients/test_java_share.py",
}


def test_every_tool_is_among_them() -> None:
    """All programs among Kafka's tools: each is run above, or has a reason."""
    (jar,) = installed.folder("java/lib").glob("kafka-tools-[0-9]*.jar")
    with zipfile.ZipFile(jar) as opened:
        programs = {
            path.rpartition("/")[2].removesuffix(".class")
            for path in opened.namelist()
            if path.endswith(".class") and _is_program(opened.read(path))
        }
    run = {one.main.rpartition(".")[2] for one in tools.COMMANDS}
    assert programs - run == set(NOT_RUN)


def _is_program(code: bytes) -> bool:
    return b"\x00\x04main" in code and b"([Ljava/lang/String;)V" in code
