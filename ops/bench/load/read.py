"""Reads a topic from its beginning as fast as it can: one group catching up.

The partitions are assigned, not agreed on in a group: how long a group takes to gather is a
setting, and not what catching up measures.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from ops.bench.load.arrivals import arrived
from ops.bench.load.channel import LoadFailed, hear, tell

_SETTINGS: Final = {
    "enable.auto.commit": False,
    # When its queue is full, librdkafka does not fetch for this long: by default a second, in which
    # it takes what the queue holds several times over, and the system that serves it idles.
    "fetch.queue.backoff.ms": 10,
}
_POLL_S: Final = 1.0
_SILENCE_MAX_S: Final = 60.0


def run(servers: str, topic: str, partitions: int, records: int, group: str) -> None:
    """Events: ready; after "go" done (value bytes, begin and end of CLOCK_MONOTONIC, seconds)."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, **_SETTINGS})
    tell("ready")
    hear()
    begin_s = heard_s = time.monotonic()
    consumer.assign([TopicPartition(topic, i, OFFSET_BEGINNING) for i in range(partitions)])
    count = value_bytes = 0
    while count < records:
        for message in arrived(consumer, _POLL_S):
            count += 1
            value_bytes += len(message.value() or b"")
            heard_s = time.monotonic()
        if time.monotonic() - heard_s > _SILENCE_MAX_S:
            raise LoadFailed(f"only {count} of {records} records came")
    consumer.close()
    tell("done", value_bytes=value_bytes, begin_s=begin_s, end_s=heard_s)
