"""Produces at a fixed rate, whatever the system does: an open loop.

Each value begins with the time at which its record was due (nanoseconds of CLOCK_MONOTONIC, int64
big endian), not the time at which it was handed over, so that a producer held up by a slow system
makes the latency larger instead of hiding it. The last record is an empty value.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Final

from confluent_kafka import KafkaError, Producer

from ops.bench.load.channel import LoadFailed, hear, heard, tell

DUE: Final = struct.Struct(">q")
_TICK_S: Final = 0.000_5
"""A record is handed over so late at the most, if the processor is free; it is part of every
latency. `poll` could not wait for so short a time: it counts in milliseconds."""
_FLUSH_TIMEOUT_S: Final = 120.0


def run(servers: str, topic: str, value_bytes: int, records_per_s: float, linger_ms: int) -> None:
    """Events: ready; from "go" to "stop" it produces to partition 0; then done (records, seconds).

    librdkafka's defaults, but acks=all, and a batch waits `linger_ms` for more records.
    """
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "linger.ms": linger_ms,
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    filler = os.urandom(max(0, value_bytes - DUE.size))
    tell("ready")
    hear()
    begin_s = time.monotonic()
    sent = 0
    while not heard():
        due = int((time.monotonic() - begin_s) * records_per_s) + 1
        for number in range(sent, due):
            at_ns = int((begin_s + number / records_per_s) * 1e9)
            producer.produce(topic, DUE.pack(at_ns) + filler, partition=0, on_delivery=on_delivery)
        sent = due
        producer.poll(0)
        time.sleep(_TICK_S)
    took_s = time.monotonic() - begin_s
    producer.produce(topic, b"", partition=0)
    if producer.flush(_FLUSH_TIMEOUT_S) or failed:
        raise LoadFailed(f"records were not acknowledged: {failed[:1] or 'no answer'}")
    tell("done", records=sent, seconds=took_s)
