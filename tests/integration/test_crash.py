"""kill -9 of all processes at once under load: every acknowledged record is there, in order, at
its offset, once.

Producers are processes of two independent code bases, idempotent, and note each acknowledgement in
a file. Some die together with the cluster, the others live through the crash, retry, and go on; the
cluster is killed twice, so that what one recovery made is recovered again. The log is read
back by librdkafka at the end.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from client.pubsub import TopicAdmin
from tests.integration.cluster import ROOT, LocalCluster, wait_until

TOPIC = "crash"
PARTITION_COUNT = 4
ROUND_RECORDS = 3_000
"""How many acknowledgements each producer gets between two crashes, at least."""


class Note(NamedTuple):
    number: int
    partition: int
    offset: int


class ProducerProcess:
    def __init__(self, kind: str, name: str, bootstrap_servers: str, folder: Path) -> None:
        self.name = name
        self._notes_path = folder / f"{name}.notes"
        self._log_path = folder / f"{name}.log"
        module = ("-m", "tests.integration.crash_producer")
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *module, kind, bootstrap_servers, TOPIC, name, self._notes_path],
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


def read_log(bootstrap_servers: str) -> dict[int, list[tuple[int, str]]]:
    """Return (offset, value) of every record, in the order in which each partition gave them."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "audit"})
    partitions = [TopicPartition(TOPIC, p, 0) for p in range(PARTITION_COUNT)]
    ends = {p.partition: consumer.get_watermark_offsets(p, timeout=30)[1] for p in partitions}
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


def check(producers: list[ProducerProcess], log: dict[int, list[tuple[int, str]]]) -> None:
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


@pytest.mark.timeout(300)
async def test_acknowledged_records_survive_kill_9_of_everything(
    start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster = start_cluster()
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create(TOPIC, partition_count=PARTITION_COUNT)

    def producer(kind: str, number: int) -> ProducerProcess:
        name = f"{kind}-{number}"
        return ProducerProcess(kind, name, cluster.bootstrap_servers, tmp_path)

    lasting = [producer("librdkafka", 0), producer("quire", 0)]
    everybody = list(lasting)
    try:
        for crash in (1, 2):
            doomed = [producer("librdkafka", crash), producer("quire", crash)]
            everybody += doomed
            for each in [*lasting, *doomed]:
                each.wait_for_more(ROUND_RECORDS)
            for each in doomed:
                each.process.kill()
            cluster.kill_all()
            cluster.start()
        for each in lasting:
            each.wait_for_more(ROUND_RECORDS)
            each.finish()
        check(everybody, read_log(cluster.bootstrap_servers))
    finally:
        for each in everybody:
            each.process.kill()
            each.process.wait()
