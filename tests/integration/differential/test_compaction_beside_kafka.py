"""Compacted topics, as Apache Kafka and Quire leave them: same input and settings, same records.

Kafka never cleans the segment that is written, Quire the last two: after the records that are
compared come some that fill two segments and more. Of those before, both leave the same (key,
offset, value). The checks of librdkafka's and of kafka-go's tests of compacted topics are made of
both, too: every record that is left can be read from every offset, in order, to the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.cluster import LocalCluster
from tests.integration.differential.kafka_node import KafkaNode

pytestmark = pytest.mark.timeout(400)

SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "2000",
    "min.insync.replicas": "1",
    "segment.index.bytes": "1000",  # or Kafka reserves 20 MiB for each segment
}
KEYS = 12
RECORDS = 600
TAIL = 200
TAIL_VALUE_BYTES = 100
"""Records of keys of their own behind those compared: ten segments, which no codec makes smaller.
Quire never cleans the last two, and a segment may become larger while the next is opened."""
TRANSACTIONAL_STEPS = 300
DEADLINE_S = 100.0


class Left(NamedTuple):
    """A record that a consumer gets."""

    offset: int
    key: bytes | None
    value: bytes | None


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """Apache Kafka, whose cleaner looks every half second."""
    node = KafkaNode(
        tmp_path_factory.mktemp("kafka"),
        {
            "log.cleaner.backoff.ms": "500",
            "log.initial.task.delay.ms": "500",
        },
    )
    try:
        yield node.start()
    finally:
        node.kill()


@pytest.fixture(scope="module")
def quick_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Quire, whose brokers look as often."""
    environ = {
        "QUIRE_BROKER_COMPACTION_CHECK_INTERVAL_MS": "500",
        "QUIRE_BROKER_COMPACTION_GRACE_MS": "1000",
    }
    folder = tmp_path_factory.mktemp("quire")
    with LocalCluster(folder, brokers=1, environ=environ) as cluster:
        yield cluster


def create(servers: str, topic: str, settings: dict[str, str], *, kafka: bool) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    if kafka:  # Kafka 4 wants a mebibyte, but for its own tests
        settings = {**settings, "internal.segment.bytes": settings["segment.bytes"]}
        del settings["segment.bytes"]
    made = admin.create_topics([NewTopic(topic, 1, 1, config=settings)])
    made[topic].result(30)


def tail(seed: int) -> list[tuple[bytes, bytes]]:
    """The records behind those compared."""
    rng = random.Random(f"tail of {seed}")
    return [(b"tail-%d" % number, rng.randbytes(TAIL_VALUE_BYTES)) for number in range(TAIL)]


def produce(servers: str, topic: str, seed: int, codec: str) -> list[Left]:
    """Write overwrites and tombstones, one batch each, then the tail; return all of it."""
    rng = random.Random(seed)
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 0, "batch.num.messages": 5,
         "compression.type": codec, "enable.idempotence": True}
    )  # fmt: skip
    sent: list[tuple[bytes, bytes | None]] = []
    for number in range(RECORDS):
        key = b"key-%d" % rng.randrange(KEYS)
        value = None if rng.random() < 0.1 else b"value-%d" % number
        sent.append((key, value))
    sent += tail(seed)
    for at, (key, value) in enumerate(sent):
        producer.produce(topic, key=key, value=value, partition=0)
        if at % 7 == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    return [Left(offset, *pair) for offset, pair in enumerate(sent)]


def read(
    servers: str,
    topic: str,
    start: int = 0,
    end: int = RECORDS + TAIL,
    isolation: str = "read_committed",
) -> list[Left]:
    """Read from an offset until the last one, which must come."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "isolation.level": isolation}
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[Left] = []
    until_s = time.monotonic() + 30
    while not found or found[-1].offset < end - 1:
        assert time.monotonic() < until_s, f"the last of {topic} is {found[-1:]}, not {end - 1}"
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            found.append(Left(message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def last_of_each(written: list[Left]) -> list[Left]:
    last = {one.key: one for one in written}
    return sorted(last.values())


def until_clean(servers: str, topic: str, wanted: list[Left]) -> list[Left]:
    """Wait until nothing else is left of the records that are compared."""
    until_s = time.monotonic() + DEADLINE_S
    while True:
        found = [one for one in read(servers, topic) if one.offset < RECORDS]
        if found == wanted:
            return found
        assert time.monotonic() < until_s, f"{topic}: {found} is left, not {wanted}"
        time.sleep(0.5)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_the_same_records_are_left(
    kafka: KafkaNode, quick_cluster: LocalCluster, codec: str
) -> None:
    topic = f"compacted-{codec}"
    left = []
    for servers in (f"127.0.0.1:{kafka.port}", quick_cluster.bootstrap_servers):
        create(servers, topic, SETTINGS, kafka=not left)
        written = produce(servers, topic, 11, codec)
        wanted = [one for one in last_of_each(written) if one.offset < RECORDS]
        left.append(until_clean(servers, topic, wanted))
        _check_every_offset(servers, topic)
        _check_the_end(servers, topic)
    assert left[0] == left[1]


def _check_the_end(servers: str, topic: str) -> None:
    """What librdkafka's test of compaction asks, and more: the end is told where it is, from
    wherever one reads, and who waits there is given the next record."""
    end = RECORDS + TAIL
    settings = {"bootstrap.servers": servers, "group.id": "none", "enable.partition.eof": True}
    for start in (0, RECORDS // 2, end):
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, 0, start)])
        assert _next_end(consumer) == end
        if start == end:
            producer = Producer({"bootstrap.servers": servers})
            producer.produce(topic, key=b"next", value=b"next", partition=0)
            assert producer.flush(30) == 0
            message = consumer.poll(30)
            assert message is not None
            assert (message.error(), message.offset()) == (None, end)
        consumer.close()


def _next_end(consumer: Consumer) -> int:
    """Read on until the consumer is told that this is the end; return where."""
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        message = consumer.poll(1)
        error = None if message is None else message.error()
        if message is not None and error is not None:
            assert error.name() == "_PARTITION_EOF", error
            offset = message.offset()
            assert offset is not None
            return offset
    raise AssertionError("the end does not come")


def _check_every_offset(servers: str, topic: str) -> None:
    """Offsets that are gone are as good to begin from as others."""
    whole = read(servers, topic)
    assert [one.offset for one in whole] == sorted({one.offset for one in whole})
    for start in (0, 1, RECORDS // 2, RECORDS - 1, RECORDS + TAIL - 1):
        assert read(servers, topic, start) == [one for one in whole if one.offset >= start]


def test_tombstones_go_after_their_time(kafka: KafkaNode, quick_cluster: LocalCluster) -> None:
    settings = {**SETTINGS, "delete.retention.ms": "1000"}
    for servers in (f"127.0.0.1:{kafka.port}", quick_cluster.bootstrap_servers):
        create(servers, "tombstones", settings, kafka=servers != quick_cluster.bootstrap_servers)
        written = produce(servers, "tombstones", 5, "none")
        wanted = [one for one in last_of_each(written) if one.offset < RECORDS]
        assert [one for one in wanted if one.value is None], "the seed has no tombstone"
        # Kafka looks for tombstones only where something is dirty.
        produce_more(servers, "tombstones")
        until_clean_of_tombstones(servers, "tombstones", wanted)


def produce_more(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(40):
        time.sleep(0.1)
        producer.produce(topic, key=b"more-%d" % (number % 7), value=b"x" * 400, partition=0)
        assert producer.flush(30) == 0


def until_clean_of_tombstones(servers: str, topic: str, wanted: list[Left]) -> None:
    alive = [one for one in wanted if one.value is not None]
    until_s = time.monotonic() + DEADLINE_S
    while True:
        found = [one for one in read(servers, topic) if one.offset < RECORDS]
        if found == alive:
            return
        assert time.monotonic() < until_s, f"{topic}: {found} is left, not {alive}"
        time.sleep(0.5)


class TransactionalInput:
    """Interleaved transactions of two producers, some of them aborted, and plain records between
    them. Each marker is awaited, or the offsets behind it would be a matter of luck."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(seed)
        self._topic = topic
        common = {"bootstrap.servers": servers}
        self._watch = Consumer({**common, "group.id": "w", "isolation.level": "read_uncommitted"})
        self._plain = Producer({**common, "linger.ms": 0})
        self._made = [
            Producer({**common, "linger.ms": 0, "transactional.id": f"{topic}-{one}"})
            for one in range(2)
        ]
        self._open: dict[int, list[Left]] = {}
        self._end = 0
        self.counts: list[Left] = []
        """Records that no abort has voided."""

    def write(self) -> list[Left]:
        """Write all of it, then the tail; return the records that count."""
        rng = self._rng
        for one in self._made:
            one.init_transactions(30)
        for number in range(TRANSACTIONAL_STEPS):
            which = rng.randrange(3)
            if which == 2:
                self.counts.append(self._record(self._plain, number))
            elif len(self._open.get(which, ())) == 3:
                self._finish(which, commit=rng.random() < 0.6)
            else:
                if which not in self._open:
                    self._made[which].begin_transaction()
                    self._open[which] = []
                self._open[which].append(self._record(self._made[which], number))
        for which in [*self._open]:
            self._finish(which, commit=True)
        for key, value in tail(self._seed):
            self.counts.append(self._put(self._plain, key, value))
        self._watch.close()
        return sorted(self.counts)

    def _record(self, producer: Producer, number: int) -> Left:
        key = b"key-%d" % self._rng.randrange(KEYS)
        return self._put(producer, key, None if self._rng.random() < 0.1 else b"value-%d" % number)

    def _put(self, producer: Producer, key: bytes, value: bytes | None) -> Left:
        producer.produce(self._topic, key=key, value=value, partition=0)
        assert producer.flush(30) == 0
        self._end += 1
        return Left(self._end - 1, key, value)

    def _finish(self, which: int, *, commit: bool) -> None:
        own = self._open.pop(which)
        if commit:
            self._made[which].commit_transaction(30)
            self.counts += own
        else:
            self._made[which].abort_transaction(30)
        until_s = time.monotonic() + 30
        place = TopicPartition(self._topic, 0)
        while self._watch.get_watermark_offsets(place, 5)[1] <= self._end:
            assert time.monotonic() < until_s, "no marker comes"
        self._end += 1


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_same_records_are_left_of_transactions(
    kafka: KafkaNode, quick_cluster: LocalCluster, isolation: str
) -> None:
    topic = f"transactions-{isolation}"
    left = []
    for servers in (f"127.0.0.1:{kafka.port}", quick_cluster.bootstrap_servers):
        create(servers, topic, SETTINGS, kafka=not left)
        counts = TransactionalInput(servers, topic, 3).write()
        end = counts[-1].offset + 1
        compared = end - TAIL
        wanted = [one for one in last_of_each(counts) if one.offset < compared]
        until_s = time.monotonic() + DEADLINE_S
        while True:
            found = read(servers, topic, 0, end, isolation)
            if [one for one in found if one.offset < compared] == wanted:
                break
            assert time.monotonic() < until_s, f"{found[:-TAIL]} is left, not {wanted}"
            time.sleep(0.5)
        for start in (1, compared // 2, compared - 1, end - 1):
            again = read(servers, topic, start, end, isolation)
            assert again == [one for one in found if one.offset >= start]
        left.append(found)
    assert left[0] == left[1]


def test_a_reader_of_tiny_segments_goes_on_over_what_is_gone(
    kafka: KafkaNode, quick_cluster: LocalCluster
) -> None:
    """What kafka-go's test of compacted messages does: segments of 200 bytes, few keys."""
    settings = {**SETTINGS, "segment.bytes": "200"}
    left = []
    for servers in (f"127.0.0.1:{kafka.port}", quick_cluster.bootstrap_servers):
        create(servers, "tiny", settings, kafka=not left)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        written = []
        for number in range(60):
            key, value = b"k%d" % (number % 4 if number < 40 else number), b"v%d" % number
            producer.produce("tiny", key=key, value=value, partition=0)
            assert producer.flush(30) == 0
            written.append(Left(number, key, value))
        until_s = time.monotonic() + DEADLINE_S
        wanted = [one for one in last_of_each(written) if one.offset < 40]
        while (
            found := [one for one in read(servers, "tiny", end=60) if one.offset < 40]
        ) != wanted:
            assert time.monotonic() < until_s, f"{found} is left, not {wanted}"
            time.sleep(0.5)
        whole = read(servers, "tiny", end=60)
        for start in range(60):
            assert read(servers, "tiny", start, 60) == [one for one in whole if one.offset >= start]
        left.append(whole)
    assert left[0] == left[1]
