"""Produces one record at a time to each partition, and tells the longest pauses of spans.

Every partition has one record under way; the next follows `interval_s` after its acknowledgement.
A pause is the time between two acknowledgements of a partition; it belongs to every span that it
reaches into, and one that is not over yet counts as long as it is.
"""

from __future__ import annotations

import time

from ops.bench.load.channel import hear, heard, tell
from ops.bench.load.failover import OneByOne


class Spans:
    """The longest pause of each partition since the last mark. Pure: times are arguments."""

    def __init__(self, partitions: int) -> None:
        self._last_s: list[float | None] = [None] * partitions
        self._longest_s = [0.0] * partitions

    @property
    def warm(self) -> bool:
        """Whether every partition has been acknowledged once."""
        return all(last is not None for last in self._last_s)

    def sent(self, partition: int, now_s: float) -> None:
        """A record goes out."""

    def acknowledged(self, partition: int, now_s: float) -> None:
        """Its acknowledgement came."""
        last_s, self._last_s[partition] = self._last_s[partition], now_s
        if last_s is not None:
            self._longest_s[partition] = max(self._longest_s[partition], now_s - last_s)

    def mark(self, now_s: float) -> list[float]:
        """Return, by partition, the longest pause in seconds since the last mark."""
        found = [
            max(longest, now_s - last) if last is not None else 0.0
            for longest, last in zip(self._longest_s, self._last_s, strict=True)
        ]
        self._longest_s = [0.0] * len(found)
        return found


def run(servers: str, topic: str, partitions: int, interval_s: float, warm_up_s: float) -> None:
    """Events: ready; after "go" warm; after each "mark" pauses (pauses_s); after "stop" done."""
    spans = Spans(partitions)
    loop = OneByOne(servers, topic, partitions, interval_s, spans)
    tell("ready")
    hear()
    warm_s = time.monotonic() + warm_up_s
    while time.monotonic() < warm_s or not spans.warm:
        loop.step()
    spans.mark(time.monotonic())
    tell("warm")
    while True:
        while not heard():
            loop.step()
        if hear() != "mark":
            break
        tell("pauses", pauses_s=spans.mark(time.monotonic()))
    tell("done")
