"""A compacted topic under kill -9 of brokers and bookies: every key ends with its last value.

The writer knows the truth: it is told the offset of each record, and is idempotent, so nothing it
sent is lost or stored twice. Brokers look for what is dirty all the time, and are killed while they
rewrite it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.cluster import LocalCluster

pytestmark = pytest.mark.timeout(300)

TOPIC = "truth"
KEYS = 40
STORM_S = 25.0
KILLS_EVERY_S = 3.0
ENVIRON = {
    "QUIRE_BROKER_COMPACTION_CHECK_INTERVAL_MS": "200",
    "QUIRE_BROKER_COMPACTION_GRACE_MS": "1000",
    "QUIRE_BROKER_COMPACTION_BYTES_PER_S": "0",
    "QUIRE_BROKER_SESSION_TIMEOUT_MS": "2000",
}
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "20000",
    "delete.retention.ms": "3600000",
}

Truth = dict[int, tuple[bytes, bytes | None]]


@pytest.fixture
def stormy(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two brokers that compact all the time."""
    with LocalCluster(tmp_path / "cluster", brokers=2, environ=ENVIRON) as cluster:
        yield cluster


def told(truth: Truth, sent: tuple[bytes, bytes | None]) -> Callable[..., None]:
    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        truth[offset] = sent

    return on_delivery


def write(servers: str, truth: Truth, victims: Callable[[int], None]) -> None:
    """Write for a while, and have something killed now and then."""
    rng = random.Random(3)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 4000,
        }
    )
    began_s = time.monotonic()
    kills = 0
    number = 0
    while time.monotonic() - began_s < STORM_S:
        key = b"key-%d" % rng.randrange(KEYS)
        value = None if rng.random() < 0.1 else b"value-%d" % number
        producer.produce(TOPIC, key=key, value=value, on_delivery=told(truth, (key, value)))
        producer.poll(0)
        number += 1
        time.sleep(0.002)
        if time.monotonic() - began_s > KILLS_EVERY_S * (kills + 1):
            victims(kills)
            kills += 1
    assert producer.flush(60) == 0
    assert len(truth) == number
    assert kills >= 5


def read(servers: str, end: int) -> Truth:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: Truth = {}
    last = -1
    until_s = time.monotonic() + 60
    while last < end - 1:
        assert time.monotonic() < until_s, f"{last} is the last of {end}"
        for message in consumer.consume(500, 0.2):
            if message.error() is not None:
                continue
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert key is not None
            assert offset > last, f"{offset} comes after {last}"
            found[offset], last = (key, message.value()), offset
    consumer.close()
    return found


def test_every_key_ends_with_its_last_value(stormy: LocalCluster) -> None:
    servers = stormy.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, config=SETTINGS)])[TOPIC].result(30)
    truth: Truth = {}
    names = ("broker-0", "bookie-1", "broker-1", "bookie-0", "broker-0", "broker-1", "bookie-2")

    def victims(at: int) -> None:
        name = names[at % len(names)]
        stormy.wait_restarted(name, stormy.kill(name))

    write(servers, truth, victims)
    last = {key: offset for offset, (key, _) in sorted(truth.items())}
    until_s = time.monotonic() + 60
    while True:
        found = read(servers, max(truth) + 1)
        assert {offset: truth[offset] for offset in found} == found
        for key, offset in last.items():
            assert found.get(offset) == truth[offset], f"the last of {key!r} is gone"
        if len(found) < len(truth) // 4:
            break
        assert time.monotonic() < until_s, f"{len(found)} of {len(truth)} records are left"
        time.sleep(1)
    log = "".join(stormy.node_log(f"broker-{index}") for index in (0, 1))
    assert log.count("compaction.swapped") > 10
    assert "Traceback" not in log
