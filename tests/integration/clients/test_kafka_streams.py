"""Kafka Streams, unmodified: word count with exactly_once_v2, killed in the middle.

Nothing is cached, so the output has one record for each word of the input, with its count: for
every word 1, 2, 3 and so on. A word that is counted twice, or not at all, shows.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.transactors import java_program

WORDS = ("apple", "bee", "cedar", "dune", "elm")
LINES = 3_000
PARTITIONS = 2


def _line(number: int) -> str:
    return " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 2, 3))


class Outputs:
    """What a reader of committed data has been given of the output so far."""

    def __init__(self, brokers: str, topic: str, group: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": brokers, "group.id": group})
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        self.counts: dict[str, list[int]] = defaultdict(list)

    def has(self, count: int) -> bool:
        """Read on; tell whether so many counts were read."""
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            self.counts[message.key().decode()].append(int(message.value()))
        return sum(map(len, self.counts.values())) >= count

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def _word_count(
    folder: Path, brokers: str, name: str, source: str, target: str
) -> Iterator[subprocess.Popen[str]]:
    with (folder / "streams.log").open("a") as log:
        program = subprocess.Popen(
            [*java_program("streams", "WordCount"), brokers, name, source, target],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
        )
        try:
            yield program
        finally:
            program.kill()
            program.wait()


def test_word_count_is_exact_though_it_is_killed_in_the_middle(
    bootstrap_servers: str, topic: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    target, name = fresh_name("counts"), fresh_name("streams")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics([NewTopic(t, PARTITIONS) for t in (topic, target)]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    outputs = Outputs(bootstrap_servers, target, fresh_name("reader"))
    wanted = [word for number in range(LINES) for word in _line(number).split()]

    def publish(numbers: range) -> None:
        for number in numbers:
            producer.produce(topic, _line(number), key=str(number))
        assert producer.flush(30) == 0

    with _word_count(tmp_path, bootstrap_servers, name, topic, target) as first:
        publish(range(LINES // 2))
        traffic.wait_for(lambda: outputs.has(len(wanted) // 8), "first counts", 120)
        first.kill()
    publish(range(LINES // 2, LINES))
    with _word_count(tmp_path, bootstrap_servers, name, topic, target):
        traffic.wait_for(lambda: outputs.has(len(wanted)), "all counts", 120)
    outputs.close()
    assert outputs.counts == {word: [*range(1, 1 + wanted.count(word))] for word in WORDS}
