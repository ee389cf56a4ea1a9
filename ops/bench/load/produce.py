"""Produces as fast as acknowledgements come back, and counts what was acknowledged.

Records go to librdkafka in lists, because a Python call per record would be the bottleneck at
100 bytes. Only failed records are reported one by one, so the acknowledged ones are those handed
over less those still inside the producer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from ops.bench.load.channel import LoadFailed, hear, tell
from ops.bench.login import properties_of

_CHUNK_BYTES: Final = 64 << 10
_FLUSH_TIMEOUT_S: Final = 120.0
_WAIT_S: Final = 0.005


class Feed:
    """Keeps a producer full."""

    def __init__(
        self,
        servers: str,
        topic: str,
        partitions: int,
        value_bytes: int,
        settings: Mapping[str, Any],
        outstanding_bytes_max: int,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._count = max(1, _CHUNK_BYTES // value_bytes)
        self._outstanding_max = outstanding_bytes_max // value_bytes
        self._values = [os.urandom(value_bytes) for _ in range(self._count)]
        self._handed_over = 0
        self._failed: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "delivery.report.only.error": True,
                "queue.buffering.max.messages": 2 * self._outstanding_max,
                "queue.buffering.max.kbytes": (2 * outstanding_bytes_max) >> 10,
                **settings,
            }
        )

    def acknowledged(self) -> int:
        """Return how many records are acknowledged. Raises LoadFailed when one failed."""
        if self._failed is not None:
            raise LoadFailed(f"a record was refused: {self._failed}")
        return self._handed_over - len(self._producer)

    def until(self, end_s: float, count_max: float = float("inf")) -> None:
        """Produce until that time, or until this many records were handed over."""
        partition = 0
        while time.monotonic() < end_s and self._handed_over < count_max:
            if len(self._producer) > self._outstanding_max:
                self._producer.poll(_WAIT_S)
                continue
            messages = [{"value": value} for value in self._values]
            self._handed_over += self._producer.produce_batch(
                self._topic, messages, partition=partition, on_delivery=self._on_failure
            )
            self._producer.poll(0)
            partition = (partition + 1) % self._partitions

    def finish(self) -> int:
        """Wait for every acknowledgement; return how many records there are."""
        if self._producer.flush(_FLUSH_TIMEOUT_S):
            raise LoadFailed(f"records were not acknowledged within {_FLUSH_TIMEOUT_S:g} s")
        return self.acknowledged()

    def _on_failure(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failed = error


def run(
    servers: str,
    topic: str,
    partitions: int,
    value_bytes: int,
    settings: Mapping[str, Any],
    outstanding_bytes_max: int,
    warm_up_s: float = 0.0,
    measure_s: float = 0.0,
    fill_bytes: int = 0,
    fill_s_max: float = float("inf"),
    properties: str = "",
) -> None:
    """Events: ready; after "go" begin, end (records, seconds) and done (records).

    With `fill_bytes` it produces that much instead, for `fill_s_max` at most, and only says done.
    `properties`: a file with further settings.
    """
    settings = {**settings, **properties_of(properties)}
    feed = Feed(servers, topic, partitions, value_bytes, settings, outstanding_bytes_max)
    tell("ready")
    hear()
    if fill_bytes:
        feed.until(time.monotonic() + fill_s_max, fill_bytes // value_bytes)
        tell("done", records=feed.finish())
        return
    feed.until(time.monotonic() + warm_up_s)
    begin, begin_s, begin_cpu_s = feed.acknowledged(), time.monotonic(), time.process_time()
    tell("begin")
    feed.until(begin_s + measure_s)
    while feed.acknowledged() == begin:  # slower than the span is long
        feed.until(time.monotonic() + _WAIT_S)
    records, seconds = feed.acknowledged() - begin, time.monotonic() - begin_s
    tell("end", records=records, seconds=seconds, cpu_s=time.process_time() - begin_cpu_s)
    tell("done", records=feed.finish())
