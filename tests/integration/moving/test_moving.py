"""Moving from Apache Kafka and back, as the handbook has it, with a live producer and consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.differential.kafka_node import KafkaNode
from tests.integration.moving.live import KEYS, Reader, Writer
from tests.integration.moving.mirror_maker import MirrorMaker, settings_of_the_handbook

_MIRROR_S = 120.0
"""What MirrorMaker takes to start and to catch up, at most, where other tests run beside it."""
pytestmark = pytest.mark.timeout(700)

TOPIC, GROUP = "orders", "billing"
TRANSACTIONS = "payments"
BACK = f"quire.{TOPIC}"
PARTITIONS = 3
_TOPIC = ConfigResource.Type.TOPIC


class Place:
    """A cluster, and what an operator looks at there."""

    def __init__(self, brokers: str) -> None:
        self.brokers = brokers
        self.admin = AdminClient({"bootstrap.servers": brokers})
        self._consumer = Consumer({"bootstrap.servers": brokers, "group.id": "operator"})

    def close(self) -> None:
        self._consumer.close()

    def ends(self, topic: str) -> list[int]:
        """Return the end offset of each partition; nothing until all of the topic is there."""
        if topic not in self.topics():
            return []
        partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        try:
            return [self._consumer.get_watermark_offsets(one, timeout=30)[1] for one in partitions]
        except KafkaException:  # it is being made, and has no leader yet
            return []

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set(self.admin.list_topics(timeout=30).topics)

    def settings(self, topic: str) -> dict[str, str | None]:
        """Return a topic's settings."""
        (found,) = self.admin.describe_configs([ConfigResource(_TOPIC, topic)]).values()
        return {name: entry.value for name, entry in found.result(30).items()}

    def set_retention(self, topic: str, value: str) -> None:
        change = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(_TOPIC, topic, incremental_configs=[change])
        (altered,) = self.admin.incremental_alter_configs([resource]).values()
        altered.result(30)

    def committed(self, topic: str) -> dict[int, int]:
        """Return the offsets that the group has committed, by partition."""
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])
        found = asked[GROUP].result(30).topic_partitions
        return {one.partition: one.offset for one in found if one.topic == topic}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Place]:
    """Apache Kafka with the topic."""
    node = KafkaNode(tmp_path / "kafka").start()
    try:
        place = Place(f"127.0.0.1:{node.port}")
        settings = {"retention.ms": "86400000", "unclean.leader.election.enable": "true"}
        wanted = [
            NewTopic(TOPIC, PARTITIONS, 1),
            NewTopic(TRANSACTIONS, PARTITIONS, 1, config=settings),
        ]
        for created in place.admin.create_topics(wanted).values():
            created.result(30)
        yield place
        place.close()
    finally:
        node.kill()


@pytest.fixture
def quire(start_cluster: Callable[..., LocalCluster]) -> Iterator[Place]:
    """Quire, which has never heard of the topic, and of nobody else's."""
    place = Place(start_cluster().bootstrap_servers)
    yield place
    place.close()


@pytest.fixture
def mirror_maker(tmp_path: Path, kafka: Place, quire: Place) -> Iterator[MirrorMaker]:
    """MirrorMaker with the settings of the page; not started."""
    addresses = {"kafka": kafka.brokers, "quire": quire.brokers}
    mirror = MirrorMaker(tmp_path, settings_of_the_handbook(addresses))
    yield mirror
    mirror.kill()
    print(mirror.last_words())  # pytest shows it if the test failed


@pytest.fixture
def writer() -> Iterator[Writer]:
    """The application's producer."""
    writer = Writer()
    yield writer
    writer.stop()


@pytest.fixture
def reader() -> Iterator[Reader]:
    """The application's consumer."""
    reader = Reader(GROUP)
    yield reader
    reader.stop()


def _wait_for_more(reader: Reader, writer: Writer) -> None:
    """Wait until the reader has processed what is written from now on."""
    number = len(writer.stored) + 100
    wait_until(lambda: number in reader.processed[-1000:], f"record {number}")


def _has_caught_up(ends: list[int], writer: Writer) -> bool:
    return len(ends) == PARTITIONS and all(ends) and sum(ends) > len(writer.stored) - 500


def _start_mirror(mirror_maker: MirrorMaker, quire: Place, writer: Writer) -> None:
    """Start MirrorMaker, and once more if it does nothing, as an operator would.

    Nothing in MirrorMaker starts a connector again that failed while it started.
    """

    def is_mirrored() -> bool:
        mirror_maker.check_alive()
        return _has_caught_up(quire.ends(TOPIC), writer)

    try:
        mirror_maker.start()
        wait_until(is_mirrored, "a mirror", _MIRROR_S)
    except AssertionError as error:
        written, mirrored = len(writer.stored), quire.ends(TOPIC)
        print(f"first start: {error}; {mirrored=}, {written=}\n{mirror_maker.last_words()}")
        # One that copies is only slow; what it copied would come twice, at other offsets.
        if not any(mirrored):
            mirror_maker.kill()
            mirror_maker.start()
        wait_until(is_mirrored, "a mirror after more time", _MIRROR_S)


def _move_reader(reader: Reader, place: Place, topic: str, old: Place, old_topic: str) -> int:
    """Move the consumers as the page says; return how many records they process twice.

    Both topics have the same records at the same offsets, so the group's offsets can be compared.
    MirrorMaker may translate newer ones between our look and the start of the consumers.
    """
    reader.stop()
    left = old.committed(old_topic)
    assert len(left) == PARTITIONS
    wait_until(lambda: place.committed(topic).keys() == left.keys(), "translated offsets")
    found = place.committed(topic)
    assert all(0 < found[p] <= left[p] for p in left), (left, found)
    reader.start(place.brokers, topic)
    wait_until(lambda: reader.begun.keys() == left.keys(), "a record of each partition")
    begun = reader.begun
    assert all(found[p] <= begun[p] <= left[p] for p in left), (left, found, begun)
    return sum(left[p] - begun[p] for p in left)


def _move_writer(writer: Writer, place: Place, topic: str, old: Place, old_topic: str) -> None:
    """Move the producers as the page says: what they have written is there before they go on."""
    writer.stop()
    ends = old.ends(old_topic)
    assert len(ends) == PARTITIONS
    wait_until(lambda: place.ends(topic) == ends, f"{ends} on the other side")
    writer.start(place.brokers, topic)


def _check(reader: Reader, writer: Writer, processed_twice: int) -> None:
    """Nothing failed or was lost, and of a key nothing came early."""
    assert writer.failed == []
    written = len(writer.stored)
    wait_until(lambda: len(set(reader.processed)) >= written, f"{written} records")
    assert sorted(set(reader.processed)) == list(range(written))
    assert len(reader.processed) - written == processed_twice
    first_times = list(dict.fromkeys(reader.processed))
    for key in range(KEYS):
        of_key = [number for number in first_times if number % KEYS == key]
        assert of_key == sorted(of_key)


def _transactions(kafka: Place) -> list[str]:
    """Write transactions of which each second one is aborted; return what was committed."""
    producer = Producer({"bootstrap.servers": kafka.brokers, "transactional.id": "payments"})
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(TRANSACTIONS, str(number), partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    return [str(number) for number in range(0, 10, 2)]


def _values(place: Place, topic: str) -> list[str]:
    """Return everything in partition 0, committed or not."""
    reader = Consumer(
        {"bootstrap.servers": place.brokers, "group.id": "x", "isolation.level": "read_uncommitted"}
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    messages = reader.consume(100, 3)
    reader.close()
    return [(one.value() or b"").decode() for one in messages]


def test_an_application_moves_and_moves_back(
    kafka: Place, quire: Place, mirror_maker: MirrorMaker, writer: Writer, reader: Reader
) -> None:
    committed = _transactions(kafka)
    writer.start(kafka.brokers, TOPIC)
    reader.start(kafka.brokers, TOPIC)
    _wait_for_more(reader, writer)
    _start_mirror(mirror_maker, quire, writer)
    assert quire.settings(TRANSACTIONS)["retention.ms"] == "86400000"
    assert quire.settings(TOPIC)["quire.ensemble.size"] == "3", "bookies"
    kafka.set_retention(TRANSACTIONS, "43200000")

    twice = _move_reader(reader, quire, TOPIC, kafka, TOPIC)
    _wait_for_more(reader, writer)
    _move_writer(writer, quire, TOPIC, kafka, TOPIC)
    _wait_for_more(reader, writer)

    wait_until(lambda: _has_caught_up(kafka.ends(BACK), writer), "a mirror back", _MIRROR_S)
    wait_until(lambda: quire.settings(TRANSACTIONS)["retention.ms"] == "43200000", "the change")
    twice += _move_reader(reader, kafka, BACK, quire, TOPIC)
    _wait_for_more(reader, writer)
    _move_writer(writer, kafka, BACK, quire, TOPIC)
    mirror_maker.kill()
    _wait_for_more(reader, writer)
    writer.stop()
    _check(reader, writer, twice)

    assert _values(quire, TRANSACTIONS) == committed
    assert {"heartbeats", "kafka.checkpoints.internal"} <= quire.topics()
    assert {"heartbeats", "quire.checkpoints.internal"} <= kafka.topics()
    assert mirror_maker.problems() == []
