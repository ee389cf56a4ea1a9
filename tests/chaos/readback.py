"""Reading a whole log back, and how long it takes until everything can be read.

Two answers, because the second depends on how much there is: when every partition has served its
first record, the one in its middle and its last one; and the reading of everything, with the
longest time for which it did not get on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

_POLL_S = 0.1
Log = dict[int, list[tuple[int, str]]]


class Timing(NamedTuple):
    """How a whole log was read. Times in seconds."""

    seconds: float
    stall_s: float
    """The longest time in which that brought nothing."""
    records: int
    size: int
    """Bytes of keys and values."""

    @property
    def mb_per_s(self) -> float:
        """Speed of reading everything, in 10^6 bytes/s."""
        return self.size / 1e6 / self.seconds


class Readback:
    """Reads one topic with librdkafka. Use as a context manager."""

    def __init__(
        self,
        servers: str,
        topic: str,
        partition_count: int,
        timeout_s: float,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """`timeout_s`: for each of the things it does; `security`: librdkafka's settings."""
        self._topic = topic
        self._partitions = range(partition_count)
        self._timeout_s = timeout_s
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "audit",
                "enable.auto.commit": False,
                **(security or {}),
            }
        )

    def __enter__(self) -> Readback:
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def ends(self) -> dict[int, int]:
        """Return the high watermarks as they are now."""
        return {partition: self._end(partition) for partition in self._partitions}

    def probe(self) -> None:
        """Read the first record, a middle one and the last of each partition."""
        ends = self.ends()
        for part in (0.0, 0.5, 1.0):
            wanted = {p: min(end - 1, int(end * part)) for p, end in ends.items() if end}
            self._assign(wanted)
            deadline_s = time.monotonic() + self._timeout_s
            while wanted:
                assert time.monotonic() < deadline_s, f"cannot read {wanted}"
                for message in self._consumer.consume(100, timeout=_POLL_S):
                    partition, offset, _ = _parts(message)
                    if wanted.get(partition) == offset:
                        del wanted[partition]

    def whole(self) -> tuple[Log, Timing]:
        """Read everything up to where the log ends now."""
        ends = self.ends()
        log: Log = {partition: [] for partition in ends}
        missing = {partition for partition, end in ends.items() if end}
        self._assign(dict.fromkeys(missing, 0))
        began_s = heard_s = time.monotonic()
        stall_s, size = 0.0, 0
        while missing:
            messages = self._consumer.consume(10_000, timeout=_POLL_S)
            now_s = time.monotonic()
            if messages:
                stall_s, heard_s = max(stall_s, now_s - heard_s), now_s
            assert now_s - heard_s < self._timeout_s, f"cannot read {missing} to {ends}"
            for message in messages:
                partition, offset, value = _parts(message)
                if offset < ends[partition]:
                    log[partition].append((offset, value))
                    size += len(message)
                if offset + 1 >= ends[partition]:
                    missing.discard(partition)
        count = sum(map(len, log.values()))
        return log, Timing(time.monotonic() - began_s, stall_s, count, size)

    def _assign(self, offsets: dict[int, int]) -> None:
        self._consumer.assign([TopicPartition(self._topic, p, at) for p, at in offsets.items()])

    def _end(self, partition: int) -> int:
        """Return the end of a partition; librdkafka does not ask again when its leader moves."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                place = TopicPartition(self._topic, partition)
                return self._consumer.get_watermark_offsets(place, timeout=2)[1]
            except KafkaException:
                if time.monotonic() > deadline_s:
                    raise
                self._consumer.list_topics(self._topic, timeout=self._timeout_s)


def _parts(message: Message) -> tuple[int, int, str]:
    error, value = message.error(), message.value()
    partition, offset = message.partition(), message.offset()
    assert error is None, error
    assert value is not None
    assert partition is not None
    assert offset is not None
    return partition, offset, value.decode()
