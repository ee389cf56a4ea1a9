"""sarama, segmentio's kafka-go and rskafka, unmodified: what each of them offers.

rskafka knows no groups, and writes to the partition that it is told; transactions of sarama are
among those of all clients (`test_transactional_clients.py`), the others have none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.programs import received, step
from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.shell import shell_for

GO = ("sarama", "kafka-go")
ALL = (*GO, "rskafka")
KEYS = 12
BATCH = 10
"""Records of a batch: of those that were cleaned most have lost some at their end."""
OVERWRITES, TAIL = 400, 300
"""Records of which some go, and behind them those of the last segments, which stay."""


def _create(brokers: str, topic: str, partitions: int, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": brokers})
    (made,) = admin.create_topics([NewTopic(topic, partitions, 1, config=named)]).values()
    made.result(30)


@pytest.mark.parametrize("client", GO)
def test_group_of_two_shares_and_a_restarted_group_goes_on(
    bootstrap_servers: str, topic: str, group: str, client: str
) -> None:
    where = {"brokers": bootstrap_servers, "topic": topic, "group": group}
    _create(bootstrap_servers, topic, traffic.PARTITION_COUNT)
    for numbers, members in ((traffic.FIRST, 2), (traffic.SECOND, 1)):
        first, end = numbers.start, numbers.stop
        assert step(client, "produce", first=first, end=end, codec="none", **where) is True
        found = step(client, "group", members=members, count=len(numbers), **where)
        traffic.check(received(found), numbers)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs_are_read_by_the_other_client(
    bootstrap_servers: str, fresh_name: Callable[[str], str], codec: str
) -> None:
    clients = GO if codec == "zstd" else ALL
    for writer, reader in zip(clients, (*clients[1:], clients[0]), strict=True):
        where = {"brokers": bootstrap_servers, "topic": fresh_name(f"{writer}-{codec}")}
        _create(bootstrap_servers, where["topic"], 1)
        step(writer, "produce", first=0, end=200, codec=codec, **where)
        found = step(reader, "records", partitions=1, count=200, **where)
        traffic.check(received(found), range(200))


@pytest.mark.parametrize("client", GO)
def test_admin(
    bootstrap_servers: str, fresh_name: Callable[[str], str], topic: str, group: str, client: str
) -> None:
    read = {"brokers": bootstrap_servers, "topic": topic, "group": group}
    _create(bootstrap_servers, topic, 1)
    step(client, "produce", first=0, end=20, codec="none", **read)
    step(client, "group", members=1, count=20, **read)
    asked = {**read, "source": topic, "topic": fresh_name("made"), "partitions": 3}
    assert step(client, "admin", **asked) == {
        "partitions": 4,
        "configs": {"retention.ms": "3600000", "segment.bytes": "1048576"},
        "state": "Empty",
        "committed": 20,
        "exists": True,
    }


def test_admin_of_rskafka(bootstrap_servers: str, topic: str) -> None:
    found = step("rskafka", "admin", brokers=bootstrap_servers, topic=topic, partitions=3)
    assert found == {"partitions": 3, "exists": True}


@pytest.fixture(scope="module")
def compacted(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A compacted topic that was cleaned."""
    topic = "compacted-for-go-and-rust"
    shell = shell_for(cluster, tmp_path_factory.mktemp("compacted"))
    _create(
        cluster.bootstrap_servers,
        topic,
        1,
        cleanup_policy="compact",
        segment_bytes="2000",
        min_cleanable_dirty_ratio="0.01",
    )
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1_000})
    rng = random.Random(22)
    for number in range(OVERWRITES + TAIL):
        name = f"key-{rng.randrange(KEYS)}" if number < OVERWRITES else f"tail-{number}"
        producer.produce(topic, f"value-{number}", name, partition=0)
        if number % BATCH == BATCH - 1:  # whatever the machine's pace
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    shell.ok(f"quire topic compact {topic}")

    def is_clean() -> bool:
        (row,) = json.loads(shell.ok(f"quire topic compaction {topic} --json"))
        return bool(row["cleaned_until"] > OVERWRITES)

    wait_until(is_clean, "compaction")
    return topic


def _offsets_seen_by_librdkafka(brokers: str, topic: str) -> list[int]:
    """Return the offsets of a partition, read with an answer for each batch."""
    settings = {"group.id": "unused", "fetch.message.max.bytes": 500, "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": brokers, **settings})
    reader.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    while True:
        message = reader.poll(traffic.PATIENCE_S)
        assert message is not None, f"nothing behind {offsets[-1:]}"
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF
            reader.close()
            return offsets
        offsets.append(message.offset() or 0)


@pytest.mark.parametrize("client", ALL)
def test_a_compacted_topic_is_read_over_its_gaps(
    cluster: LocalCluster, compacted: str, client: str
) -> None:
    where = {"brokers": cluster.bootstrap_servers, "topic": compacted}
    found = received(step(client, "records", partitions=1, count=TAIL, **where))
    assert [one.value for one in found] == [f"value-{one.offset}" for one in found]
    offsets = [one.offset for one in found]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == OVERWRITES + TAIL - 1
    assert offsets == _offsets_seen_by_librdkafka(cluster.bootstrap_servers, compacted)
    last = {one.key: one.offset for one in found}
    gone = set(range(offsets[-1] + 1)) - set(offsets)
    assert len(gone) > OVERWRITES // 2
    assert len(last) == KEYS + TAIL


def test_kafka_go_reads_over_compacted_ends_of_batches_by_two_hundred_bytes(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """What its TestReaderReadCompactedMessage asks: segments of 200 bytes, batches of three that
    end with more and more records that are gone, answers of 200 bytes; each key comes once."""
    shell = shell_for(cluster, tmp_path)
    _create(cluster.bootstrap_servers, topic, 1, cleanup_policy="compact", segment_bytes="200")
    names: list[str] = []
    for repeats in range(5):
        for _ in range(10):
            names.append(f"{len(names):04}")
            names += ["dup_"] * repeats
    overwritten = len(names)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1_000})

    def produce(chosen: list[str]) -> None:
        for at, name in enumerate(chosen):
            producer.produce(topic, name, name, partition=0)
            if at % 3 == 2:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0

    produce(names)
    for half in range(2):  # Kafka leaves the last segment as it is, Quire the last two
        shell.ok(f"quire topic roll {topic}")
        markers = [f"e-{half}{number}" for number in range(5)]
        names += markers
        produce(markers)
    shell.ok(f"quire topic compact {topic}")

    def is_clean() -> bool:
        (row,) = json.loads(shell.ok(f"quire topic compaction {topic} --json"))
        return bool(row["cleaned_until"] >= overwritten)

    wait_until(is_clean, "compaction")
    wanted = sorted({name: at for at, name in enumerate(names)}.values())
    where = {"brokers": cluster.bootstrap_servers, "topic": topic}
    found = received(step("kafka-go", "records", partitions=1, bytes_max=200, **where))
    assert [one.offset for one in found] == wanted
    assert [one.value for one in found] == [names[at] for at in wanted]
