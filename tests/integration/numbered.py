"""Producers that number their records and note acknowledgements, and the check of what became.

Used by tests that kill things: the producers are processes of two independent code bases, so that
what they were told outlives whatever dies; the log is read back by librdkafka.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.integration.cluster import ROOT, wait_until


class Note(NamedTuple):
    """One acknowledgement."""

    number: int
    partition: int
    offset: int


class ProducerProcess:
    """A producer in a process of its own, and what it was told."""

    def __init__(
        self,
        kind: str,
        name: str,
        bootstrap_servers: str,
        topic: str,
        folder: Path,
        per_s: float = 5_000,
    ) -> None:
        self.name = name
        self._notes_path = folder / f"{name}.notes"
        self._log_path = folder / f"{name}.log"
        program = (sys.executable, "-m", "tests.integration.crash_producer")
        about = (kind, bootstrap_servers, topic, name, str(self._notes_path), str(per_s))
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, *about],
                cwd=ROOT,
                stderr=log,
            )

    def notes(self) -> list[Note]:
        if not self._notes_path.exists():
            return []
        text = self._notes_path.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [Note(*map(int, line.split())) for line in lines]

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.notes()) + count

        def there() -> bool:
            assert self.process.poll() is None, self._log_path.read_text()
            return len(self.notes()) >= wanted

        wait_until(there, f"{wanted} acknowledgements of {self.name}", 60)

    def finish(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self._log_path.read_text()


def read_log(
    bootstrap_servers: str, topic: str, partition_count: int
) -> dict[int, list[tuple[int, str]]]:
    """Return (offset, value) of every record, in the order in which each partition gave them."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "audit"})
    partitions = [TopicPartition(topic, p, 0) for p in range(partition_count)]
    ends = {p.partition: _end(consumer, p) for p in partitions}
    found: dict[int, list[tuple[int, str]]] = {p: [] for p in ends}
    consumer.assign(partitions)
    deadline_s = time.monotonic() + 60

    def next_offset(partition: int) -> int:
        return found[partition][-1][0] + 1 if found[partition] else 0

    while any(next_offset(partition) < end for partition, end in ends.items()):
        assert time.monotonic() < deadline_s, f"cannot read to {ends}"
        for message in consumer.consume(10_000, timeout=0.5):
            assert message.error() is None, message.error()
            found[message.partition()].append((message.offset(), message.value().decode()))
    consumer.close()
    return found


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the end of a partition; librdkafka does not ask again when its leader moves."""
    deadline_s = time.monotonic() + 30
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=30)[1]
        except KafkaException:
            if time.monotonic() > deadline_s:
                raise
            consumer.list_topics(partition.topic, timeout=30)


def check(producers: list[ProducerProcess], log: dict[int, list[tuple[int, str]]]) -> None:
    """Assert that every acknowledged record is there, in order, at its offset, once."""
    at = {(p, offset): value for p, records in log.items() for offset, value in records}
    for partition, records in log.items():
        offsets = [offset for offset, _ in records]
        assert offsets == list(range(len(offsets))), f"gap in partition {partition}"
    for producer in producers:
        notes = producer.notes()
        wrong = [
            n for n in notes if at.get((n.partition, n.offset)) != f"{producer.name}:{n.number}"
        ]
        assert not wrong, f"{producer.name}: {len(wrong)} acknowledged, not there: {wrong[:5]}"
        numbers = [
            int(value.partition(":")[2])
            for records in log.values()
            for _, value in records
            if value.startswith(f"{producer.name}:")
        ]
        assert numbers == list(range(len(numbers))), f"{producer.name}: duplicates or disorder"
        assert len(numbers) >= len(notes)
