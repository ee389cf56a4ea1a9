"""Bytes that cross racks, counted by real processes: those of consumers, and those of bookies."""

from __future__ import annotations

import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from client.node.scrapes import AGE_S_MAX
from tests.fakes.scrape import parse
from tests.integration.cluster import LocalCluster, wait_until

TOPIC = "racks"
BATCHES, BATCH_BYTES = 40, 50_000
SIZE = BATCHES * BATCH_BYTES


@pytest.fixture
def cluster_of_racks(tmp_path: Path) -> Iterator[LocalCluster]:
    """A broker in rack a, and a bookie in each of a, b and c."""
    made = LocalCluster(tmp_path / "cluster", brokers=1)
    first = made.ports["--bookie-port"]
    racks = [f"127.0.0.1:{first + number}={rack}" for number, rack in enumerate("abc")]
    made.environ |= {"QUIRE_BROKER_RACK": "a", "QUIRE_BROKER_LEDGER_RACKS": ",".join(racks)}
    with made:
        yield made


def test_bookies_nearby_are_read_and_who_is_sent_bytes_is_told_apart(
    cluster_of_racks: LocalCluster,
) -> None:
    cluster = cluster_of_racks
    _write(cluster.bootstrap_servers)
    # What is read then is not in the broker's memory.
    old = cluster.kill("broker-0", signal.SIGTERM)
    cluster.wait_restarted("broker-0", old)
    wait_until(lambda: _is_quiet(cluster), "everything is led again")
    before = _metrics(cluster)
    for rack in ("a", "b", ""):
        _read(cluster.bootstrap_servers, rack)
    after = _metrics(cluster)
    grown = {name: value - before.get(name, 0) for name, value in after.items()}

    sent = {one: grown[f'quire_broker_fetched_rack_bytes_total{{rack="{one}"}}']
            for one in ("same", "other", "unknown")}  # fmt: skip
    assert min(sent.values()) >= SIZE, sent
    assert sum(sent.values()) == grown["quire_broker_fetched_bytes_total"]

    read = {one: _read_from(grown, one) for one in ("same", "other", "unknown")}
    assert read["same"] >= SIZE, read
    assert read["other"] == read["unknown"] == 0, read


def _write(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for _ in range(BATCHES):
        producer.produce(TOPIC, bytes(BATCH_BYTES), partition=0)
        assert producer.flush(60) == 0


def _read(servers: str, rack: str) -> None:
    """Read the whole topic as a consumer in a rack; "": as one that says none."""
    settings = {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer({**settings, "client.rack": rack} if rack else settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        for number in range(BATCHES):
            message = consumer.poll(60)
            assert message is not None, f"{number} of {BATCHES} records came"
            assert message.error() is None, message.error()
    finally:
        consumer.close()


def _metrics(cluster: LocalCluster) -> dict[str, float]:
    url = f"http://127.0.0.1:{cluster.about['brokers'][0]['admin']}/metrics"
    time.sleep(AGE_S_MAX)  # what was answered before is answered again until then
    with urllib.request.urlopen(url, timeout=30) as answer:
        return parse(answer.read())


def _is_quiet(cluster: LocalCluster) -> bool:
    """Whether all partitions are led: what opening them reads is over."""
    try:
        found = _metrics(cluster)
    except OSError:
        return False
    waits = ("quire_broker_partitions_missing", "quire_broker_partitions_opening")
    return found["quire_broker_partitions_led"] > 0 and not any(found[name] for name in waits)


def _read_from(grown: dict[str, float], relation: str) -> float:
    name = "quire_ledger_bookie_read_bytes_total{"
    return sum(
        value for key, value in grown.items()
        if key.startswith(name) and f'rack="{relation}"' in key
    )  # fmt: skip
