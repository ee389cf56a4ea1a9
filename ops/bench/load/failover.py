"""Produces one record at a time to each partition, and says when acknowledgements came again.

Every partition has one record under way; the next follows `interval_s` after its acknowledgement.
A partition is back with the first acknowledgement that only the next leader can have given: the
end of the longest stretch between two acknowledgements, among those that end after the kill and no
later than with the first record that was sent after it. So an acknowledgement that was already on
the wire does not count, and neither does a slow write of the next leader.
"""

from __future__ import annotations

import heapq
import time
from typing import Final, Protocol

from confluent_kafka import KafkaError, Message, Producer

from ops.bench.load.channel import LoadFailed, hear, heard, tell

_GIVE_UP_S: Final = 120.0
_WAIT_S: Final = 0.002


class Pauses:
    """When each partition was acknowledged. Pure: times are arguments."""

    def __init__(self, partitions: int) -> None:
        self._last_s: list[float | None] = [None] * partitions
        self._sent_s = [0.0] * partitions
        self._longest: dict[int, tuple[float, float]] = {}
        self._served: set[int] = set()
        self.killed_s: float | None = None
        """Just before the kill."""
        self.dead_s = 0.0
        """Just after it: the dead one cannot have taken what was sent later."""

    @property
    def warm(self) -> bool:
        """Whether every partition has been acknowledged once."""
        return all(last is not None for last in self._last_s)

    def sent(self, partition: int, now_s: float) -> None:
        """A record goes out."""
        self._sent_s[partition] = now_s

    def acknowledged(self, partition: int, now_s: float) -> None:
        """Its acknowledgement came."""
        last_s, self._last_s[partition] = self._last_s[partition], now_s
        if self.killed_s is None or last_s is None or now_s < self.killed_s:
            return
        if partition in self._served:
            return
        pause_s = now_s - last_s
        if pause_s > self._longest.get(partition, (0.0, 0.0))[0]:
            self._longest[partition] = (pause_s, now_s)
        if self._sent_s[partition] > self.dead_s:
            self._served.add(partition)

    def all_served(self) -> bool:
        """Whether every partition acknowledged a record that was sent after the kill."""
        return len(self._served) == len(self._last_s)

    def back_s(self) -> list[float]:
        """Return, by partition, the seconds from the kill until it was back."""
        assert self.killed_s is not None
        return [self._longest[i][1] - self.killed_s for i in range(len(self._last_s))]


class Notes(Protocol):
    """Who is told of the records."""

    def sent(self, partition: int, now_s: float) -> None:
        """A record goes out."""

    def acknowledged(self, partition: int, now_s: float) -> None:
        """Its acknowledgement came."""


class OneByOne:
    """Carries the records."""

    def __init__(
        self, servers: str, topic: str, partitions: int, interval_s: float, notes: Notes
    ) -> None:
        self._notes = notes
        self._topic = topic
        self._interval_s = interval_s
        self._due = [(0.0, partition) for partition in range(partitions)]
        self._failed: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "linger.ms": 0,
                "log_level": 0,  # that a broker is gone is the purpose
            }
        )

    def step(self) -> None:
        """Send what is due and take what is acknowledged. Raises LoadFailed."""
        if self._failed is not None:
            raise LoadFailed(f"a record was given up: {self._failed}")
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            _, partition = heapq.heappop(self._due)
            self._notes.sent(partition, now_s)
            self._producer.produce(
                self._topic, b"x" * 100, partition=partition, on_delivery=self._on_delivery
            )
        self._producer.poll(_WAIT_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error
            return
        now_s, partition = time.monotonic(), message.partition()
        assert partition is not None
        self._notes.acknowledged(partition, now_s)
        heapq.heappush(self._due, (now_s + self._interval_s, partition))


def run(servers: str, topic: str, partitions: int, interval_s: float, warm_up_s: float) -> None:
    """Events: ready; after "go" warm; after "killed BEFORE AFTER" done (back_s by partition)."""
    pauses = Pauses(partitions)
    loop = OneByOne(servers, topic, partitions, interval_s, pauses)
    tell("ready")
    hear()
    warm_s = time.monotonic() + warm_up_s
    while time.monotonic() < warm_s or not pauses.warm:
        loop.step()
    tell("warm")
    while not heard():
        loop.step()
    pauses.killed_s, pauses.dead_s = map(float, hear().split()[1:])
    while not pauses.all_served():
        if time.monotonic() > pauses.killed_s + _GIVE_UP_S:
            raise LoadFailed(f"partitions were not served again within {_GIVE_UP_S:g} s")
        loop.step()
    tell("done", back_s=pauses.back_s())
