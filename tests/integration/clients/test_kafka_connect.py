"""Kafka Connect, unmodified: an exactly-once source in two workers, one of them killed.

A file of numbered lines is read into a topic, each poll of the connector one transaction with the
connector's own offsets in it (KIP-618). The worker that reads is killed in the middle; the other
one ends its open transaction, fences it, and goes on. A reader of committed data finds every line
once, in order, and a sink, which is at least once, leaves none out.

How long the survivor takes is Connect's own, here and on Apache Kafka: the dead worker's session
has to end, and if it dies while workers are being given their work, `rebalance.timeout.ms` too
(a minute by default); then work waits for `scheduled.rebalance.max.delay.ms` (five). Both are set.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ops.java import find_java
from ops.ports import pick_free
from tests.integration.clients import installed, traffic

LINES: Final = 3_000
POLL_LINES: Final = 20
"""In each transaction."""
SPARE_LINES: Final = 200
"""The connector keeps lines that it has read beyond a poll until its file grows: of 1,024 bytes."""
WORKER: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
CONNECTORS: Final = "org.apache.kafka.connect.file.FileStream"
STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"
_PAUSE_S: Final = 0.3


def _settings(brokers: str, group: str, port: int) -> dict[str, str]:
    topics = {
        f"{kind}.storage.{what}": value
        for kind in ("offset", "config", "status")
        for what, value in (("topic", f"{group}-{kind}"), ("replication.factor", "-1"))
    }
    return topics | {
        "bootstrap.servers": brokers,
        "group.id": group,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",  # without a look into every class of every jar
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        # A dead worker leaves the group after this, and its work is given away at once.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "rebalance.timeout.ms": "10000",
        "scheduled.rebalance.max.delay.ms": "0",
        "consumer.isolation.level": "read_committed",
    }


class Worker:
    """One process."""

    def __init__(self, folder: Path, brokers: str, group: str, port: int) -> None:
        jars = installed.folder("connect/lib")
        self.id = f"127.0.0.1:{port}"
        file = folder / f"worker-{port}.properties"
        settings = _settings(brokers, group, port)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        options.append("-Dorg.slf4j.simpleLogger.showDateTime=true")
        command = [str(find_java().path), *options, "-cp", f"{jars}{os.sep}*", WORKER, str(file)]
        with (folder / f"worker-{port}.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def ask(self, path: str, body: object = None) -> Any:
        """Ask its REST interface; None, after a pause, while it cannot answer."""
        request = urllib.request.Request(
            f"http://{self.id}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except OSError:  # an HTTP error, too
            return _in_a_moment() or None

    def begin(self, connector: str, settings: Mapping[str, str]) -> None:
        """Make a connector."""
        path = f"/connectors/{connector}/config"
        traffic.wait_for(
            lambda: self.ask(path, settings) is not None, f"connector {connector}", 120
        )

    def places(self, connector: str) -> list[str]:
        """Return the ids of the workers that run a connector and its task; empty: not yet."""
        status = self.ask(f"/connectors/{connector}/status")
        parts = [] if status is None else [status["connector"], *status["tasks"]]
        if len(parts) < 2 or any(one["state"] != "RUNNING" for one in parts):
            return []
        return [one["worker_id"] for one in parts]


@contextmanager
def _worker(folder: Path, brokers: str, group: str, port: int) -> Iterator[Worker]:
    worker = Worker(folder, brokers, group, port)
    try:
        yield worker
    finally:
        worker.kill()


class Reader:
    """What is committed in the topic so far."""

    def __init__(self, brokers: str, topic: str, group: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": brokers, "group.id": group})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.lines: list[str] = []

    def has(self, count: int) -> bool:
        """Read on; tell whether so many lines were read."""
        for message in self._consumer.consume(500, 0.1):
            if message.error() is None:
                self.lines.append(message.value().decode())
        return len(self.lines) >= count

    def close(self) -> None:
        self._consumer.close()


def _in_a_moment() -> bool:
    time.sleep(_PAUSE_S)
    return False


def _lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _reading_worker(workers: Sequence[Worker]) -> Worker:
    """Wait until the work is shared out among all; return the worker that reads the file."""
    ids: list[str] = []

    def is_shared() -> bool:
        ids[:] = [*workers[0].places("copy"), *workers[0].places("lines")]
        return len(set(ids)) == len(workers) or _in_a_moment()

    traffic.wait_for(is_shared, "work for every worker", 120)
    return next(worker for worker in workers if worker.id == ids[-1])


@pytest.mark.timeout(240)
def test_a_file_is_in_the_topic_once_though_a_worker_is_killed(
    bootstrap_servers: str, topic: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    group = fresh_name("connect")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    lines = [f"line {number}" for number in range(LINES + SPARE_LINES)]
    source, sink = tmp_path / "lines", tmp_path / "copied"
    source.write_text(f"{lines[0]}\n")
    reader = Reader(bootstrap_servers, topic, fresh_name("reader"))
    with ExitStack() as stack:
        workers = [
            stack.enter_context(_worker(tmp_path, bootstrap_servers, group, port))
            for port in pick_free(2)
        ]
        workers[0].begin(
            "copy",
            {"connector.class": f"{CONNECTORS}SinkConnector", "tasks.max": "1", "topics": topic,
             "file": str(sink)},
        )  # fmt: skip
        workers[0].begin(
            "lines",
            {"connector.class": f"{CONNECTORS}SourceConnector", "tasks.max": "1", "topic": topic,
             "file": str(source), "batch.size": str(POLL_LINES),
             "exactly.once.support": "required"},
        )  # fmt: skip
        reading = _reading_worker(workers)
        traffic.wait_for(lambda: reader.has(1), "first line")
        with source.open("a") as more:
            more.writelines(f"{line}\n" for line in lines[1:])
        traffic.wait_for(lambda: reader.has(LINES // 10), "lines")
        reading.kill()
        at_kill = len(reader.lines)
        traffic.wait_for(lambda: reader.has(LINES), f"lines after the first {at_kill}")
        traffic.wait_for(
            lambda: set(lines[:LINES]) <= set(_lines_of(sink)) or _in_a_moment(), "copies"
        )
    reader.close()
    assert reader.lines == lines[: len(reader.lines)]
    assert at_kill < LINES
