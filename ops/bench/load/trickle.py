"""Produces a little to each of many partitions, and measures each acknowledgement.

Every partition gets one record at its own moment of each interval, whatever the system does: an
open loop. A latency begins when the record was due, so a producer that is held up makes it larger.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Producer

from ops.bench.load.channel import LoadFailed, hear, heard, tell

_TICK_S: Final = 0.001
_FLUSH_TIMEOUT_S: Final = 120.0


def run(servers: str, topic: str, partitions: int, value_bytes: int, interval_s: float) -> None:
    """Events: ready; from "go" to "stop" it produces; then arrived (arrivals: [due s, ms]).

    librdkafka's defaults, but acks=all and no linger: a record is a batch of its own.
    """
    arrivals: list[tuple[float, float]] = []
    failed: list[KafkaError] = []

    def on_delivery(due_s: float, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)
        else:
            arrivals.append((due_s, (time.monotonic() - due_s) * 1e3))

    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
    value = os.urandom(value_bytes)
    for number in range(partitions):  # connections are made and leaders known
        producer.produce(topic, value, partition=number)
    if producer.flush(_FLUSH_TIMEOUT_S):
        raise LoadFailed("the first records were not acknowledged")
    tell("ready")
    hear()
    begin_s = time.monotonic()
    sent = 0
    while not heard():
        due = int((time.monotonic() - begin_s) / interval_s * partitions) + 1
        for number in range(sent, due):
            at_s = begin_s + number * interval_s / partitions
            told = partial(on_delivery, at_s)
            producer.produce(topic, value, partition=number % partitions, on_delivery=told)
        sent = due
        producer.poll(_TICK_S)
    if producer.flush(_FLUSH_TIMEOUT_S) or failed:
        raise LoadFailed(f"records were not acknowledged: {failed[:1] or 'no answer'}")
    tell("arrived", arrivals=arrivals)
