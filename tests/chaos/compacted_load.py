"""A client of the run with a compacted topic, as a process of its own: a writer or a reader.

    python -m tests.chaos.compacted_load ROLE SERVERS NAME NOTES PAUSE_S [ZOOKEEPER]

    writer    overwrites and deletes keys of its own, idempotently, one record every PAUSE_S; notes
              each record once its place is known
    reader    reads from the first offset to what is the end then, again and again, and rests for
              PAUSE_S between two answers
    ledgers   the same out of ledgers, by the plans and tasks of the Spark source, which wait for
              PAUSE_S between planning and reading

Notes are JSON, one object a line; `judges/compacted_passes.py` says what is in them.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from client.errors import QuireError
from tests.chaos.judges.compacted_passes import (
    BATCH_BYTES,
    DELETED_P,
    KEYS,
    PARTITIONS,
    TOPIC,
    VALUE_BYTES,
)

_SKEW = 3
"""Some keys are overwritten every moment, others hardly ever."""
_BETWEEN_S = 1.0
"""Between two passes."""
_FLUSH_S = 120.0
_QUERY_S = 10.0
_FETCH_TIMEOUT_MS = 20_000


class Load:
    """What every role has: notes, and the wish to go on."""

    def __init__(self, about: list[str]) -> None:
        self.servers, self.name, notes, pause_s = about[:4]
        self.pause_s = float(pause_s)
        self._notes = Path(notes)
        self.goes_on = True
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.goes_on = False

    def note(self, kind: str, **fields: Any) -> None:
        """Write a line that stays, whatever becomes of this process."""
        with self._notes.open("a") as file:
            file.write(json.dumps({"f": kind, "by": self.name, **fields}) + "\n")


class Writer(Load):
    """Overwrites and deletes its keys."""

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": BATCH_BYTES,
            }
        )
        life = f"{self.name}.{time.time_ns():x}"
        rng = random.Random(life)
        number = 0
        while self.goes_on:
            key = f"{self.name}:{int(KEYS * rng.random() ** _SKEW)}"
            value = f"{life}:{number}:".ljust(VALUE_BYTES, ".")
            kept = None if rng.random() < DELETED_P else value
            told = partial(self._delivered, int(time.time() * 1000))
            producer.produce(TOPIC, key=key, value=kept, on_delivery=told)
            number += 1
            producer.poll(self.pause_s)
        assert producer.flush(_FLUSH_S) == 0, "not all was delivered"

    def _delivered(self, ms: int, error: KafkaError | None, message: Message) -> None:
        key, value = message.key(), message.value()
        offset = message.offset() if error is None else None
        place = (
            message.partition() if error is None else -1,
            -1 if offset is None else offset,
        )
        text = None if value is None else value.decode()
        why = {} if error is None else {"error": error.name()}
        self.note("write", ms=ms, place=place, key=key.decode(), value=text, **why)


class Pass:
    """What one reading of the log shows, from its first offset to its end."""

    def __init__(self, bounds: dict[int, tuple[int, int]]) -> None:
        self.bounds = bounds
        """Partition -> (first offset, end)."""
        self.began_ms = int(time.time() * 1000)
        self.last: dict[str, tuple[int, int, str | None]] = {}
        self.disorder: list[str] = []
        self.count = 0
        self._before = dict.fromkeys(bounds, -1)

    def show(self, partition: int, offset: int, key: str, value: str | None) -> None:
        """The next record."""
        if offset <= self._before[partition]:
            self.disorder.append(f"{partition}/{offset} after {self._before[partition]}")
        self._before[partition] = offset
        self.last[key] = (partition, offset, value)
        self.count += 1

    def passed_end(self, partition: int) -> None:
        """A record behind the end was shown: if the last one before it was not, it was compacted
        while the pass went on, and nobody can wait for it."""
        self._before[partition] = max(self._before[partition], self.bounds[partition][1] - 1)

    def ended(self) -> set[int]:
        """Return the partitions whose last record was shown, or something behind it."""
        return {p for p, (_, end) in self.bounds.items() if self._before[p] >= end - 1}

    def fields(self) -> dict[str, Any]:
        """Return what is noted of it."""
        return {
            "began_ms": self.began_ms,
            "ended_ms": int(time.time() * 1000),
            "bounds": self.bounds,
            "last": self.last,
            "count": self.count,
            "disorder": self.disorder,
        }


class Reader(Load):
    """Reads through brokers, with librdkafka."""

    def run(self) -> None:
        while self.goes_on:
            consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.name})
            try:
                found = self._read(consumer)
                if found is not None:
                    self.note("pass", **found.fields())
                time.sleep(_BETWEEN_S)
            except KafkaException as error:
                self.note("failed", text=str(error))
                time.sleep(1.0)
            finally:
                consumer.close()

    def _read(self, consumer: Consumer) -> Pass | None:
        """Read once from the first offset to the end; None: this process is to end."""
        places = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
        bounds = {p.partition: consumer.get_watermark_offsets(p, timeout=_QUERY_S) for p in places}
        found = Pass(bounds)
        consumer.assign([TopicPartition(TOPIC, p, first) for p, (first, _) in bounds.items()])
        while len(found.ended()) < PARTITIONS:
            if not self.goes_on:
                return None
            for message in consumer.consume(500, 0.2):
                self._show(found, message)
            time.sleep(self.pause_s)
        return found

    def _show(self, found: Pass, message: Message) -> None:
        error = message.error()
        if error is not None:
            if not error.retriable() and error.name() != "_PARTITION_EOF":
                self.note("failed", text=str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        if offset < found.bounds[partition][1]:
            text = None if value is None else value.decode()
            found.show(partition, offset, message.key().decode(), text)
        else:
            found.passed_end(partition)


class LedgerReader(Load):
    """Reads ledgers as executors of Spark do."""

    def __init__(self, about: list[str]) -> None:
        super().__init__(about)
        self._zookeeper = about[4]

    def run(self) -> None:
        while self.goes_on:
            try:
                self.note("pass", **self._read().fields())
            except (QuireError, OSError, TimeoutError) as error:
                self.note("failed", text=f"{type(error).__name__}: {error}")
                time.sleep(1.0)

    def _read(self) -> Pass:
        from client.spark.brokers.kafka_cluster import EARLIEST, LATEST, KafkaCluster
        from client.spark.options import Options
        from client.spark.plan import ledger_mode
        from client.spark.read.task_reader import read_task
        from client.spark.splits import OffsetRange, TaskSplits
        from client.spark.splits import TopicPartition as Place

        settings = Options(
            self.servers,
            columns=("key", "value", "partition", "offset"),
            read_mode="ledger",
            metadata_service_uri=self._zookeeper,
            fetch_timeout_ms=_FETCH_TIMEOUT_MS,
        )
        kafka = KafkaCluster(self.servers, _FETCH_TIMEOUT_MS)
        try:
            places = [Place(TOPIC, p) for p in range(PARTITIONS)]
            topic_id = kafka.topics([TOPIC])[TOPIC].topic_id
            firsts = kafka.offsets(dict.fromkeys(places, EARLIEST))
            ends = kafka.offsets(dict.fromkeys(places, LATEST))
        finally:
            kafka.close()
        found = Pass({at.partition: (firsts[at], ends[at]) for at in places})
        ranges = [
            OffsetRange(topic_id, TOPIC, p, first, end) for p, (first, end) in found.bounds.items()
        ]
        splits = ledger_mode.plan(ranges, settings)
        time.sleep(self.pause_s)
        for split in splits:
            for batch in read_task(TaskSplits((split,)), settings):
                for row in batch.to_pylist():
                    value = None if row["value"] is None else row["value"].decode()
                    found.show(row["partition"], row["offset"], row["key"].decode(), value)
        return found


ROLES = {"writer": Writer, "reader": Reader, "ledgers": LedgerReader}


def main() -> int:
    """Run a role until SIGTERM."""
    faulthandler.register(signal.SIGQUIT)
    ROLES[sys.argv[1]](sys.argv[2:]).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
