"""Admission control of a stream: how much one micro-batch takes.

The rule of `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` with `maxTriggerDelay`, and
`maxBytesPerTrigger`, without I/O and with time as an argument. The shares are those of Spark's
Kafka source: in proportion to each partition's backlog, and at least one record of every partition
that has any, so that none starves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from client.spark.splits import TopicPartition

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class TriggerLimits:
    """What a batch may take; None: as much as there is."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 0
    """How long `offsets_min` may hold records back."""


class Admission:
    """Decides the end of each batch. Remembers only when it last let one through."""

    def __init__(self, limits: TriggerLimits) -> None:
        self.limits = limits
        self._last_ms: int | None = None

    def end(
        self,
        start: Positions,
        latest: Positions,
        now_ms: int,
        bytes_per_record: Mapping[TopicPartition, float],
        *,
        hurry: bool = False,
    ) -> dict[TopicPartition, int]:
        """Return where the next batch ends; `start` again while too little is there.

        `latest` is not before `start` in any partition. `hurry` disregards the lower limit: a
        query that ends with what is there must not wait for more.
        """
        backlog = {at: latest[at] - start[at] for at in latest}
        total = sum(backlog.values())
        if not hurry and self._holds_back(total, now_ms):
            return dict(start)
        if total:
            self._last_ms = now_ms
        share = self._share(backlog, total, bytes_per_record)
        if share >= 1:
            return dict(latest)
        return {at: start[at] + _part(backlog[at], share) for at in latest}

    def _holds_back(self, total: int, now_ms: int) -> bool:
        least = self.limits.offsets_min
        if least is None or total >= least:
            return False
        # Without a batch before it there is nothing to count the delay from: it goes at once, so
        # that a restart does not add another delay to the one before it.
        return self._last_ms is not None and now_ms - self._last_ms < self.limits.delay_ms_max

    def _share(
        self,
        backlog: Mapping[TopicPartition, int],
        total: int,
        bytes_per_record: Mapping[TopicPartition, float],
    ) -> float:
        share = 1.0
        if self.limits.offsets_max is not None and total > self.limits.offsets_max:
            share = self.limits.offsets_max / total
        if self.limits.bytes_max is not None:
            size = sum(count * bytes_per_record.get(at, 0.0) for at, count in backlog.items())
            if size > self.limits.bytes_max:
                share = min(share, self.limits.bytes_max / size)
        return share


def _part(count: int, share: float) -> int:
    part = count * share
    return min(count, math.ceil(part) if part < 1 else math.floor(part))
