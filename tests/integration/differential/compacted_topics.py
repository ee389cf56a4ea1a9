"""Compacted topics of one partition, at Apache Kafka and at Quire: written, changed, read alike.

Kafka never cleans the segment that is written, Quire the last two. So what is to be cleaned is
followed by records of keys of their own (`System.seal`): Kafka's segments are full then, and Quire
is told to begin new ones, whatever the pace of the machine.
"""

from __future__ import annotations

import itertools
import json
import random
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.differential.kafka_node import KafkaNode

T = TypeVar("T")

SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "2000",
    "min.insync.replicas": "1",
}
BATCH = 5
"""Records that are acknowledged before more are sent."""
TAIL = 25
"""Records behind those that are to be cleaned: together more than one segment."""
PATIENCE_S = 100.0
_TOPIC = ResourceType.TOPIC

Pair = tuple[bytes, bytes | None]


class Left(NamedTuple):
    """A record that a consumer gets."""

    offset: int
    key: bytes | None
    value: bytes | None


class System:
    """A cluster and clients of it."""

    def __init__(self, name: str, servers: str) -> None:
        self.name = name
        self.servers = servers
        self.written: dict[str, list[Left]] = {}
        """All that was ever written, by topic."""
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "none", "enable.partition.eof": True,
             "fetch.wait.max.ms": 50, "auto.offset.reset": "earliest"}
        )  # fmt: skip
        self._numbers = itertools.count()

    def __str__(self) -> str:
        return self.name

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def roll(self, topic: str) -> None:
        """Begin a new segment, where a full one does not do so before the next record."""

    def settings(self, wanted: dict[str, str]) -> dict[str, str]:
        """Return what has to be asked for to get these settings."""
        return wanted

    # --- changes ------------------------------------------------------------------------

    def create(self, topic: str, **settings: object) -> None:
        """Make a topic; `settings` have underscores for dots, None: not set at all."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        merged = {**SETTINGS, **named}
        wanted = {name: str(value) for name, value in merged.items() if value is not None}
        made = self._admin.create_topics([NewTopic(topic, 1, 1, config=self.settings(wanted))])
        made[topic].result(30)
        self.written[topic] = []

    def alter(self, topic: str, **settings: object) -> None:
        """Change settings of a topic."""
        wanted = {name.replace("_", "."): str(value) for name, value in settings.items()}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in self.settings(wanted).items()
        ]
        resource = ConfigResource(_TOPIC, topic, incremental_configs=entries)
        (altered,) = self._admin.incremental_alter_configs([resource]).values()
        altered.result(30)

    def put(self, topic: str, pairs: Iterable[Pair], timestamp_ms: int = 0) -> int:
        """Write records, of a time or of now; return the log's end."""
        written = self.written[topic]
        for key, value in pairs:
            self._producer.produce(topic, key=key, value=value, partition=0, timestamp=timestamp_ms)
            written.append(Left(len(written), key, value))
            if len(written) % BATCH == 0:
                assert self._producer.flush(30) == 0
        assert self._producer.flush(30) == 0
        return len(written)

    def seal(self, topic: str, timestamp_ms: int = 0) -> None:
        """Write what is not compared, so that all before it may be cleaned."""
        for _ in range(2):
            self.roll(topic)
            end = len(self.written[topic])
            rng = random.Random(f"{topic} from {end} on")
            tail = [(b"tail-%d" % at, rng.randbytes(100)) for at in range(end, end + TAIL)]
            self.put(topic, tail, timestamp_ms)

    def delete_records(self, topic: str, before: int) -> None:
        """Raises KafkaException."""
        place = TopicPartition(topic, 0, before)
        (deleted,) = self._admin.delete_records([place]).values()
        deleted.result(30)

    # --- what is there ------------------------------------------------------------------

    def log_start(self, topic: str) -> int:
        """Return the first offset that may be asked for."""
        return self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[0]

    def messages(self, topic: str) -> list[Message]:
        """Read from the first offset to the end."""
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[Message] = []
        while True:
            message = self._consumer.poll(PATIENCE_S)
            assert message is not None, f"{topic} has no end: {found[-1:]}"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.name() == "_PARTITION_EOF", error
                return found

    def left(self, topic: str, end: int = 1 << 60) -> list[Left]:
        """Return what a consumer gets below an offset."""
        found = [_left(message) for message in self.messages(topic)]
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets))
        written = self.written[topic]
        assert [one for one in found if written[one.offset] != one] == [], "it was written there"
        return [one for one in found if one.offset < end]

    def newest(self, topic: str, end: int) -> list[Left]:
        """Return what has to be left below an offset: the last record of each key."""
        last = {one.key: one for one in self.written[topic]}
        return sorted(one for one in last.values() if one.offset < end)

    # --- events -------------------------------------------------------------------------

    def await_clean(self, topic: str, end: int, *, start: int = 0) -> list[Left]:
        """Wait until nothing else is left below an offset than has to be; return it."""
        wanted = [one for one in self.newest(topic, end) if one.offset >= start]
        return self.await_left(topic, end, lambda found: found == wanted)

    def await_left(
        self, topic: str, end: int, is_right: Callable[[list[Left]], bool]
    ) -> list[Left]:
        """Wait until what is left below an offset is right; return it."""
        found: list[Left] = []

        def looked() -> bool:
            found[:] = self.left(topic, end)
            return is_right(found)

        wait_until(looked, f"{topic} of {self} to be clean below {end}", PATIENCE_S)
        return found

    def await_start(self, topic: str, at_least: int) -> int:
        """Wait until the log begins at an offset or behind it; return where."""
        wait_until(
            lambda: self.log_start(topic) >= at_least, f"{topic} of {self} to begin at {at_least}",
            PATIENCE_S,
        )  # fmt: skip
        return self.log_start(topic)

    def await_cleaner(self) -> None:
        """Wait until whatever is due by now was cleaned.

        The most urgent partition comes first, then all are looked at anew. One that becomes dirty
        is cleaned, and then another one: before that the cleaner has looked at all others.
        """
        for _ in range(2):
            topic = f"sentinel-{next(self._numbers)}"
            self.create(topic)
            end = self.put(topic, [(b"same", b"%d" % number) for number in range(10)])
            self.seal(topic)
            self.await_clean(topic, end)


class Kafka(System):
    """Apache Kafka."""

    def __init__(self, node: KafkaNode) -> None:
        super().__init__("Apache Kafka", f"127.0.0.1:{node.port}")

    def settings(self, wanted: dict[str, str]) -> dict[str, str]:
        """Kafka 4 wants segments of a mebibyte, but for its own tests, and reserves 20 MiB of
        index for each."""
        wanted = {**wanted, "segment.index.bytes": "1000"}
        if "segment.bytes" in wanted:
            wanted["internal.segment.bytes"] = wanted.pop("segment.bytes")
        return wanted


class Quire(System):
    """A cluster of ours, with one broker."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__("Quire", cluster.bootstrap_servers)
        self.cluster = cluster

    def roll(self, topic: str) -> None:
        """Begin a new segment."""
        self.ask(topic, "/roll", method="POST")

    def ask(self, topic: str, path: str, method: str = "GET") -> Any:
        """Ask the admin API about the partition."""
        port = self.cluster.about["brokers"][0]["admin"]
        url = f"http://127.0.0.1:{port}/admin/v1/topics/{topic}/partitions/0{path}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")


def both(systems: Sequence[System], scenario: Callable[[System], T]) -> T:
    """Play a scenario at all systems at a time, and want the same from each."""
    with ThreadPoolExecutor(len(systems)) as pool:
        first, *others = pool.map(scenario, systems)
    assert all(other == first for other in others)
    return first


def _left(message: Message) -> Left:
    offset = message.offset()
    assert offset is not None
    return Left(offset, message.key(), message.value())
