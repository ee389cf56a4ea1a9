"""Kafka Streams, unmodified: word count, killed in the middle.

Nothing is cached, so the output has one record for each word of the input, with its count: for
every word 1, 2, 3 and so on. With exactly_once_v2 a word that is counted twice, or not at all,
shows. With at_least_once what was not committed is counted again: at least one record goes out for
each word of the input, and the last count is at least the true one. Which numbers lie between is
not promised: the changelog may have outlived the kill where the output beside it, still in the
producer's buffer, did not, and then counting goes on from the later number. State is in memory, so
that it is restored from the changelog.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.java_programs import java_program

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

    def hold(self, ends: Mapping[str, int]) -> bool:
        """Tell whether each word has as many records as it has to, and was counted to its end."""
        return all(
            len(self.counts[word]) >= end and max(self.counts[word]) >= end
            for word, end in ends.items()
        )

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def _word_count(
    folder: Path, brokers: str, name: str, source: str, target: str, guarantee: str
) -> Iterator[subprocess.Popen[str]]:
    with (folder / "streams.log").open("a") as log:
        program = subprocess.Popen(
            [*java_program("streams", "WordCount"), brokers, name, source, target, guarantee],
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


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_word_count_goes_on_though_it_is_killed_in_the_middle(
    bootstrap_servers: str,
    topic: str,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    guarantee: str,
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

    application = (tmp_path, bootstrap_servers, name, topic, target, guarantee)
    with _word_count(*application) as first:
        publish(range(LINES // 2))
        traffic.wait_for(lambda: outputs.has(len(wanted) // 8), "first counts", 120)
        first.kill()
    publish(range(LINES // 2, LINES))
    ends = {word: wanted.count(word) for word in WORDS}
    is_exact = guarantee == "exactly_once_v2"
    with _word_count(*application):
        traffic.wait_for(
            lambda: outputs.has(len(wanted)) and (is_exact or outputs.hold(ends)), "counts", 120
        )
    outputs.close()
    if is_exact:
        assert outputs.counts == {word: [*range(1, 1 + end)] for word, end in ends.items()}
    for word, end in ends.items():
        assert len(outputs.counts[word]) >= end
        assert max(outputs.counts[word]) >= end
