"""Share groups with Kafka 4.4.0, unmodified: the console consumer and `KafkaShareConsumer`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ops.java import find_java
from tests.integration.clients import installed, traffic
from tests.integration.clients.java_programs import java_program
from tests.integration.clients.kafka_tools import run

TOOLS = "org.apache.kafka.tools"
JARS = "java-4.4"


def tool(main_class: str, *arguments: str) -> list[str]:
    jars = installed.folder(f"{JARS}/lib")
    options = ["-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    java = str(find_java().path)
    return [java, *options, "-cp", f"{jars}{os.sep}*", main_class, *arguments]


def create(servers: str, topic: str) -> None:
    where = ("--bootstrap-server", servers, "--topic", topic)
    run(f"{TOOLS}.TopicCommand", "--create", "--partitions", str(traffic.PARTITION_COUNT), *where)


def publish(servers: str, topic: str, numbers: range) -> None:
    lines = (f"{traffic.key(n)}|{traffic.value(n)}\n" for n in numbers)
    run(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", servers, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
        text="".join(lines),
    )


def operate(main_class: str, *arguments: str) -> None:
    """Run one of 4.4's tools."""
    done = subprocess.run(tool(main_class, *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def set_group(servers: str, group: str, settings: str) -> None:
    """As an operator does it, maybe before the group is there."""
    operate(
        f"{TOOLS}.ConfigCommand",
        *("--bootstrap-server", servers, "--entity-type", "groups", "--entity-name", group),
        *("--alter", "--add-config", settings),
    )


def begin_at_the_beginning(servers: str, group: str) -> None:
    set_group(servers, group, "share.auto.offset.reset=earliest")


class Member:
    """A program that takes records and prints them."""

    def __init__(self, command: list[str], path: Path) -> None:
        self.path = path
        with path.open("w") as out, path.with_suffix(".log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log)

    def lines(self) -> list[str]:
        text = self.path.read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.lines() if line[:1].isdigit()]


@contextmanager
def members(*commands: list[str], where: Path) -> Iterator[list[Member]]:
    found = [Member(command, where / f"{at}.txt") for at, command in enumerate(commands)]
    try:
        yield found
    finally:
        for one in found:
            one.process.terminate()
            one.process.wait(20)


def test_two_console_consumers_share_a_topic(
    bootstrap_servers: str, topic: str, group: str, tmp_path: Path
) -> None:
    create(bootstrap_servers, topic)
    publish(bootstrap_servers, topic, traffic.FIRST)
    begin_at_the_beginning(bootstrap_servers, group)
    command = tool(
        f"{TOOLS}.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--group", group),
    )
    with members(command, command, where=tmp_path) as found:
        traffic.wait_for(
            lambda: sum(len(one.lines()) for one in found) >= len(traffic.FIRST), "records"
        )
        publish(bootstrap_servers, topic, traffic.SECOND)
        wanted = len(traffic.FIRST) + len(traffic.SECOND)
        traffic.wait_for(lambda: sum(len(one.lines()) for one in found) >= wanted, "the rest")
    values = sorted(line for one in found for line in one.lines())
    assert values == sorted(map(traffic.value, [*traffic.FIRST, *traffic.SECOND])), "each once"


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_program_settles_records_and_its_successor_gets_none_of_them(
    bootstrap_servers: str, topic: str, group: str, tmp_path: Path, mode: str
) -> None:
    create(bootstrap_servers, topic)
    publish(bootstrap_servers, topic, traffic.FIRST)
    begin_at_the_beginning(bootstrap_servers, group)

    def command(count: int) -> list[str]:
        program = java_program(JARS, "Shares")
        return [*program, bootstrap_servers, topic, group, mode, str(count)]

    with members(command(len(traffic.FIRST)), where=tmp_path) as (one,):
        traffic.wait_for(lambda: "done" in one.lines(), "end of the program")
    assert not [line for line in one.lines() if line.startswith("failed")]
    settled = [row for row in one.rows() if row[3] != "release"]
    assert sorted(row[4] for row in settled) == sorted(map(traffic.value, traffic.FIRST))
    released = {row[4] for row in one.rows() if row[3] == "release"}
    assert bool(released) == (mode == "explicit")
    assert {row[4] for row in settled if row[2] == "2"} == released, "their second delivery"

    publish(bootstrap_servers, topic, traffic.SECOND)
    with members(command(len(traffic.SECOND)), where=tmp_path) as (two,):
        traffic.wait_for(lambda: "done" in two.lines(), "end of its successor")
    settled = [row for row in two.rows() if row[3] != "release"]
    assert sorted(row[4] for row in settled) == sorted(map(traffic.value, traffic.SECOND))


def test_operators_see_a_group_move_it_and_delete_it(
    bootstrap_servers: str, topic: str, group: str, tmp_path: Path
) -> None:
    """`kafka-share-groups`, as its documentation has it."""
    create(bootstrap_servers, topic)
    publish(bootstrap_servers, topic, traffic.FIRST)
    begin_at_the_beginning(bootstrap_servers, group)
    program = java_program(JARS, "Shares")
    count = str(len(traffic.FIRST))
    with members(
        [*program, bootstrap_servers, topic, group, "implicit", count], where=tmp_path
    ) as (one,):
        traffic.wait_for(lambda: "done" in one.lines(), "end of the program")

    def share_groups(*arguments: str) -> list[list[str]]:
        done = subprocess.run(
            tool(
                f"{TOOLS}.consumer.group.ShareGroupCommand",
                *("--bootstrap-server", bootstrap_servers, "--group", group),
                *arguments,
            ),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.split() for line in done.stdout.splitlines() if line.startswith(group)]

    states = share_groups("--describe", "--state")
    assert [row[-2:] for row in states] == [["Empty", "0"]]
    rows = share_groups("--describe", "--offsets")
    assert {row[1] for row in rows} == {topic}
    assert sum(int(row[3]) for row in rows) == len(traffic.FIRST)
    assert {row[4] for row in rows} == {"0"}, "lag"

    moved = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    share_groups(*moved)
    rows = share_groups("--describe", "--offsets")
    assert sum(int(row[3]) for row in rows) == 0
    assert sum(int(row[4]) for row in rows) == len(traffic.FIRST)
    with members(
        [*program, bootstrap_servers, topic, group, "implicit", count], where=tmp_path
    ) as (again,):
        traffic.wait_for(lambda: "done" in again.lines(), "all of it once more")
    share_groups("--delete-offsets", "--topic", topic)
    assert share_groups("--describe", "--offsets") == []
    share_groups("--delete")


def test_what_a_console_consumer_rejects_is_a_dead_letter(
    bootstrap_servers: str, topic: str, group: str, tmp_path: Path
) -> None:
    """Everything by Kafka's own tools: settings, the topic, the consumers of both."""
    letters = f"dlq.{topic}"
    create(bootstrap_servers, topic)
    operate(
        f"{TOOLS}.TopicCommand",
        *("--create", "--partitions", "1", "--bootstrap-server", bootstrap_servers),
        *("--topic", letters, "--config", "errors.deadletterqueue.group.enable=true"),
    )
    publish(bootstrap_servers, topic, traffic.FIRST)
    begin_at_the_beginning(bootstrap_servers, group)
    names = ("topic.name", letters), ("copy.record.enable", "true")
    settings = ",".join(f"errors.deadletterqueue.{name}={value}" for name, value in names)
    set_group(bootstrap_servers, group, settings)
    rejecting = tool(
        f"{TOOLS}.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--group", group, "--reject"),
    )
    reading = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap_servers, "--topic", letters, "--from-beginning"),
        *("--formatter-property", "print.headers=true"),
        *("--formatter-property", "print.key=true"),
    )
    with members(rejecting, reading, where=tmp_path) as (one, other):
        traffic.wait_for(lambda: len(other.lines()) >= len(traffic.FIRST), "dead letters")
    assert len(one.lines()) == len(other.lines()) == len(traffic.FIRST), "each once"
    rows = [line.split("\t") for line in other.lines()]
    assert sorted(row[2] for row in rows) == sorted(map(traffic.value, traffic.FIRST))
    for headers, _key, _value in rows:
        assert f"__dlq.errors.topic:{topic}," in headers
        assert f"__dlq.errors.group:{group}," in headers
        assert "__dlq.errors.delivery.count:1," in headers
        assert headers.endswith("__dlq.errors.message:Offset rejected by client.")
