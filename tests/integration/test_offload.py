"""Old segments in an object store, end to end: real nodes, an unmodified client, a directory or a
server that speaks S3. What consumers read stays the same, byte for byte, when ledgers have gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ops.ports import pick_free
from tests.integration.cluster import LocalCluster, wait_until

pytestmark = pytest.mark.smoke

QUICK = {
    "QUIRE_BROKER_OFFLOAD_CHECK_INTERVAL_MS": "200",
    "QUIRE_BROKER_OFFLOAD_LEDGER_GRACE_MS": "0",
    "QUIRE_BROKER_OFFLOAD_OBJECT_GRACE_MS": "0",
    "QUIRE_BROKER_TAIL_CACHE_BYTES_MAX": "1000000",
}
OFFLOADED = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.ms": "1",
    "segment.bytes": "60000",
}
Row = tuple[int, bytes | None, bytes | None, Any, Any]


class S3Server:
    """moto's server, which speaks S3, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = pick_free(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = (folder / "s3.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=self._log,
            stderr=self._log,
        )
        wait_until(self._answers, "the S3 server")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/data.json", timeout=5):
                return True
        except OSError:
            return False

    def make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    server = S3Server(tmp_path)
    yield server
    server.close()


def offload(cluster: LocalCluster, topic: str) -> dict[str, Any]:
    """Ask as an operator does."""
    command = [sys.executable, "-m", "ops.cli.main", "topic", "offload", topic, "--json"]
    admin = f"http://127.0.0.1:{cluster.ports['--admin-port']}"
    done = subprocess.run(
        [*command, "--admin", admin], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def create(cluster: LocalCluster, topic: str, **more: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = OFFLOADED | {key.replace("_", "."): value for key, value in more.items()}
    futures = admin.create_topics([NewTopic(topic, 1, 2, config=config)])
    futures[topic].result(30)
    return admin


def delivered(error: object, _message: object) -> None:
    assert error is None, error


def produce(cluster: LocalCluster, topic: str) -> None:
    """Plain records, and transactions of which every third is aborted."""
    base = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "linger.ms": 20,
        "batch.size": 10_000,
        "on_delivery": delivered,
    }
    plain = Producer({**base, "compression.type": "lz4"})
    for number in range(3000):
        value = f"{number:06}" + "x" * 200 + os.urandom(100).hex()
        plain.produce(topic, value, str(number % 50), headers={"n": str(number)})
        plain.poll(0)
    plain.flush(60)
    writer = Producer({**base, "transactional.id": f"{topic}-writer"})
    writer.init_transactions(30)
    for turn in range(12):
        writer.begin_transaction()
        for number in range(100):
            writer.produce(topic, f"{turn}.{number} " + os.urandom(100).hex(), b"t")
        writer.flush(60)
        if turn % 3 == 2:
            writer.abort_transaction(30)
        else:
            writer.commit_transaction(30)
    for number in range(1500):
        plain.produce(topic, f"{number:06}" + "y" * 500, None)
    plain.flush(60)


def first_offset(consumer: Consumer, topic: str) -> int:
    """Ask until the partition has a leader again: librdkafka calls one without a leader unknown,
    and goes on to do so until it reads all metadata again (see findings)."""
    deadline = time.monotonic() + 30
    while True:
        try:
            start, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
            consumer.list_topics(timeout=10)
        else:
            return int(start)


def consume(cluster: LocalCluster, topic: str, isolation: str) -> list[Row]:
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"reader-{time.time_ns()}",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "check.crcs": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, first_offset(consumer, topic))])
    rows: list[Row] = []
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.name() == "_PARTITION_EOF":
                consumer.close()
                return rows
            continue
        rows.append(
            (message.offset(), message.key(), message.value(), message.timestamp(),
             message.headers())
        )  # fmt: skip
    raise AssertionError(f"the end was not reached: {len(rows)} records")


def restart_brokers(cluster: LocalCluster) -> None:
    """kill -9 of both: nothing that they read or wrote is in memory any more."""
    for index in range(2):
        pid = cluster.kill(f"broker-{index}")
        cluster.wait_restarted(f"broker-{index}", pid)


def round_trip(cluster: LocalCluster, topic: str) -> dict[str, Any]:
    """Write, read, have it offloaded, and read the same again after both brokers were killed."""
    create(cluster, topic)
    produce(cluster, topic)
    plain = consume(cluster, topic, "read_uncommitted")
    committed = consume(cluster, topic, "read_committed")
    assert len(plain) == 3000 + 1200 + 1500
    assert len(committed) == 3000 + 800 + 1500

    def is_there() -> bool:
        status = offload(cluster, topic)
        return status["state"] == "current" and status["local_from"] > 3000

    wait_until(is_there, "old ledgers to leave the bookies", 90)
    restart_brokers(cluster)
    assert consume(cluster, topic, "read_uncommitted") == plain
    assert consume(cluster, topic, "read_committed") == committed
    return offload(cluster, topic)


def test_what_a_directory_has_is_read_back_as_it_was(tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    environ = {**QUICK, "QUIRE_BROKER_OFFLOAD_STORE_URL": f"file://{objects}"}
    with LocalCluster(tmp_path / "cluster", environ=environ) as cluster:
        status = round_trip(cluster, "tiered")
        assert status["store"] == f"file://{objects}"
        assert status["reason"] == ""
        assert list(objects.rglob("*.seg"))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.delete_topics(["tiered"])["tiered"].result(30)
        wait_until(lambda: not list(objects.rglob("*.seg")), "the objects to go with their topic")


def test_what_s3_has_is_read_back_as_it_was_and_a_missing_bucket_is_named(
    tmp_path: Path, s3: S3Server
) -> None:
    environ = {
        **QUICK,
        "QUIRE_BROKER_OFFLOAD_STORE_URL": "s3://old-segments/quire",
        "QUIRE_BROKER_OFFLOAD_ENDPOINT": s3.url,
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    with LocalCluster(tmp_path / "cluster", environ=environ) as cluster:
        create(cluster, "early")
        produce(cluster, "early")
        wait_until(
            lambda: "no such bucket" in offload(cluster, "early")["reason"],
            "the missing bucket to be named",
            60,
        )
        assert len(consume(cluster, "early", "read_uncommitted")) == 5700
        s3.make_bucket("old-segments")
        assert round_trip(cluster, "tiered")["reason"] == ""


def test_a_broker_without_a_store_says_so_to_who_wants_one(cluster: LocalCluster) -> None:
    with pytest.raises(KafkaException, match=r"set offload\.store_url"):
        create(cluster, "nowhere")
