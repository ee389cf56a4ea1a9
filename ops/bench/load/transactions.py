"""Producers that do nothing but transactions, one after the other, and time each commit.

Or, to compare, the same records without transactions: then a flush stands for a commit.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from confluent_kafka import KafkaException, Producer

from ops.bench.load.channel import LoadFailed, hear, tell
from ops.bench.spread import percentile

_CALL_TIMEOUT_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.05
BATCH_BYTES: Final = 1_048_000
"""What a transaction of 1,000 records of 1,024 bytes fits in; brokers take batches up to 1 MiB.

In two batches librdkafka (2.16) polls without a pause until the first is acknowledged, so that
each producer would burn a core of the system under test for as long as that takes.
"""


class _Writer(threading.Thread):
    """One producer. `transactions`: (when its commit or flush ended, how long that took in ms)."""

    def __init__(
        self, number: int, servers: str, topic: str, batch: list[bytes], aborted: float | None
    ) -> None:
        """`aborted`: the share of transactions that are; None: without transactions."""
        super().__init__(daemon=True)
        self.transactions: list[tuple[float, float]] = []
        self.committed = 0
        """Records."""
        self.error: Exception | None = None
        self.goes_on = True
        settings = {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "batch.size": BATCH_BYTES,
            "message.max.bytes": BATCH_BYTES,
        }
        if aborted is not None:
            settings["transactional.id"] = f"bench-{topic}-{number}"
        self._topic = topic
        self._batch = batch
        self._partition = number
        self._aborted = aborted
        self._count = 0
        self._producer = Producer(settings)
        if aborted is not None:
            self._producer.init_transactions(_CALL_TIMEOUT_S)

    def run(self) -> None:
        try:
            while self.goes_on:
                self._one()
        except (KafkaException, LoadFailed) as error:
            self.error = error

    def _one(self) -> None:
        producer, aborted = self._producer, self._aborted
        self._count += 1
        if aborted is not None:
            producer.begin_transaction()
        for value in self._batch:
            producer.produce(self._topic, value, partition=self._partition)
        if aborted and int(self._count * aborted) > int((self._count - 1) * aborted):
            # What is aborted before it is sent would not be in the log.
            self._flush()
            producer.abort_transaction(_CALL_TIMEOUT_S)
            return
        began_s = time.monotonic()
        if aborted is None:
            self._flush()
        else:
            producer.commit_transaction(_CALL_TIMEOUT_S)
        ended_s = time.monotonic()
        self.transactions.append((ended_s, (ended_s - began_s) * 1e3))
        self.committed += len(self._batch)

    def _flush(self) -> None:
        if self._producer.flush(_CALL_TIMEOUT_S):
            raise LoadFailed("records were not acknowledged")


def _since(writers: list[_Writer], begin_s: float) -> list[float]:
    """Return how long commits took that ended since then, in ms, sorted."""
    found = [ms for one in writers for at_s, ms in list(one.transactions) if at_s >= begin_s]
    return sorted(found)


def run(
    servers: str,
    topic: str,
    producers: int,
    records: int,
    value_bytes: int,
    aborted: float | None,
    warm_up_s: float,
    measure_s: float,
) -> None:
    """Events: ready; after "go" begin, and end (commits, seconds, p50_ms, p99_ms of a commit);
    when all have ended, done (records: those that are committed, of the warm-up too).

    Each producer has a partition, and `records` in each transaction. `aborted`: see `_Writer`.
    """
    batch = [os.urandom(value_bytes) for _ in range(records)]
    writers = [_Writer(number, servers, topic, batch, aborted) for number in range(producers)]
    tell("ready")
    hear()
    for writer in writers:
        writer.start()
    time.sleep(warm_up_s)
    tell("begin")
    begin_s = time.monotonic()
    time.sleep(measure_s)
    while not (taken := _since(writers, begin_s)) and time.monotonic() - begin_s < _CALL_TIMEOUT_S:
        time.sleep(_LOOK_AGAIN_S)
    end_s = time.monotonic()
    failed = [one.error for one in writers if one.error is not None]
    if failed or not taken:
        raise LoadFailed(f"transactions failed: {failed[:1] or 'none was committed'}")
    tell(
        "end", commits=len(taken), seconds=end_s - begin_s,
        p50_ms=percentile(taken, 0.5), p99_ms=percentile(taken, 0.99),
    )  # fmt: skip
    for writer in writers:
        writer.goes_on = False
    for writer in writers:
        writer.join()
    tell("done", records=sum(one.committed for one in writers))
