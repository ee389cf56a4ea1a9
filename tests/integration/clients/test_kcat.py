"""kcat, unmodified: publish with keys, headers and codecs; subscribe through a group."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from client.pubsub import TopicAdmin
from tests.integration.clients import installed, traffic
from tests.integration.clients.traffic import Received

pytestmark = pytest.mark.smoke


async def _create(bootstrap_servers: str, topic: str) -> None:
    async with TopicAdmin(bootstrap_servers) as topics:
        await topics.create(topic, partition_count=traffic.PARTITION_COUNT)


def _publish(bootstrap_servers: str, topic: str, numbers: range, *options: str) -> None:
    lines = "".join(f"{traffic.key(n)}|{traffic.value(n)}\n" for n in numbers)
    name, content = traffic.HEADER
    arguments = ["-P", "-b", bootstrap_servers, "-t", topic, "-K", "|", *options]
    done = subprocess.run(
        [installed.command("kcat"), *arguments, "-H", f"{name}={content.decode()}"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=traffic.PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _parse(line: str) -> Received:
    record = json.loads(line)
    assert record["headers"] == [traffic.HEADER[0], traffic.HEADER[1].decode()]
    return Received(record["partition"], record["offset"], record["key"], record["payload"])


def _read_all(bootstrap_servers: str, topic: str) -> list[Received]:
    done = subprocess.run(
        [installed.command("kcat"), "-C", "-b", bootstrap_servers, "-t", topic, "-e", "-J"],
        capture_output=True,
        text=True,
        timeout=traffic.PATIENCE_S,
        check=True,
    )
    return [_parse(line) for line in done.stdout.splitlines()]


class _Member:
    """A kcat in group mode that writes to a file; SIGTERM makes it commit and leave."""

    def __init__(self, bootstrap_servers: str, topic: str, group: str, path: Path) -> None:
        self._path = path
        arguments = ["-b", bootstrap_servers, "-G", group, "-J", "-u", "-X"]
        with path.open("w") as out, path.with_suffix(".log").open("w") as log:
            self._process = subprocess.Popen(
                [installed.command("kcat"), *arguments, "auto.offset.reset=earliest", topic],
                stdout=out,
                stderr=log,
            )

    def assigned(self) -> int:
        """Return how many partitions the last rebalance gave it, out of its log."""
        lines = self._path.with_suffix(".log").read_text().splitlines()
        rebalances = [line for line in lines if "assigned:" in line]
        return rebalances[-1].count("[") if rebalances else 0

    def received(self) -> list[Received]:
        text = self._path.read_text()
        return [_parse(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)


async def test_group_of_two_shares_and_a_restarted_group_goes_on(
    bootstrap_servers: str, topic: str, group: str, tmp_path: Path
) -> None:
    await _create(bootstrap_servers, topic)
    members = [
        _Member(bootstrap_servers, topic, group, tmp_path / f"{number}.json") for number in (1, 2)
    ]
    try:
        traffic.wait_for(
            lambda: [m.assigned() for m in members] == [2, 2],
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
    member = _Member(bootstrap_servers, topic, group, tmp_path / "3.json")
    try:
        traffic.wait_for(lambda: len(member.received()) >= len(traffic.SECOND), "the rest")
    finally:
        member.stop()
    traffic.check(member.received(), traffic.SECOND)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_comes_back(bootstrap_servers: str, topic: str, codec: str) -> None:
    await _create(bootstrap_servers, topic)
    _publish(bootstrap_servers, topic, traffic.FIRST, "-z", codec, "-X", "enable.idempotence=true")
    traffic.check(_read_all(bootstrap_servers, topic), traffic.FIRST)


def test_lists_the_brokers(bootstrap_servers: str) -> None:
    done = subprocess.run(
        [installed.command("kcat"), "-L", "-J", "-b", bootstrap_servers],
        capture_output=True,
        timeout=traffic.PATIENCE_S,
        check=True,
    )
    assert json.loads(done.stdout)["brokers"]
