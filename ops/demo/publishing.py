"""Publishes the files of the demonstration, line by line, and times every acknowledgement.

One lane per partition works through the files whose key belongs there, so that a partition
without a leader holds up its own lane and no other. `gaps_s` is then the time without service of
each partition, as a publisher sees it.

Publishing can be made to wait at a share of each lane until `go_on`: however small the source and
fast the cluster, something is left to be published when the kill comes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from functools import partial

from aiokafka.partitioner import murmur2

from client.pubsub import Address, Publisher, PubSubError
from ops.demo.check import Checker
from ops.demo.member import LINE_HEADER


class Publication:
    """Counters and times of one run; the loop's clock, in seconds."""

    def __init__(
        self, topic: str, partition_count: int, checker: Checker, *, hold_at: float = 1.0
    ) -> None:
        """`hold_at`: share of each lane's lines after which it waits for `go_on`."""
        self._topic = topic
        self._checker = checker
        self.published = 0
        self.acknowledged = 0
        self.acknowledged_size = 0
        self.failures: list[PubSubError] = []
        self.started_s = 0.0
        self.ended_s = 0.0
        self._hold_at = hold_at
        self._may_go_on = asyncio.Event()
        self._last_s = [0.0] * partition_count
        self._longest_gap_s = [0.0] * partition_count

    async def run(self, publisher: Publisher, files: Mapping[str, bytes]) -> None:
        """Publish all files and return when every record has its outcome."""
        self.started_s = asyncio.get_running_loop().time()
        self._last_s = [self.started_s] * len(self._last_s)
        lanes: list[list[str]] = [[] for _ in self._last_s]
        for name in files:
            lanes[_partition(name, len(lanes))].append(name)
        async with asyncio.TaskGroup() as group:
            for partition, names in enumerate(lanes):
                group.create_task(self._run_lane(publisher, partition, names))
        await publisher.flush()

    def go_on(self) -> None:
        """Let the lanes publish what is behind `hold_at`."""
        self._may_go_on.set()

    @property
    def answered(self) -> int:
        """Records that are acknowledged or have failed."""
        return self.acknowledged + len(self.failures)

    async def _run_lane(self, publisher: Publisher, partition: int, names: list[str]) -> None:
        left = math.ceil(self._hold_at * sum(len(self._checker.lines(name)) for name in names))
        for name in names:
            key = name.encode()
            lines = self._checker.lines(name)
            self._checker.on_published(len(lines))
            self.published += len(lines)
            for number, line in enumerate(lines):
                if left == 0:
                    await self._may_go_on.wait()
                left -= 1
                await publisher.enqueue(
                    self._topic,
                    line,
                    key=key,
                    partition=partition,
                    headers=[(LINE_HEADER, b"%d" % number)],
                    on_done=partial(self._on_done, name, number, len(line)),
                )

    def _on_done(self, name: str, line: int, size: int, outcome: Address | PubSubError) -> None:
        if not isinstance(outcome, Address):
            self.failures.append(outcome)
            return
        self._checker.on_acknowledged(name, line, outcome.partition, outcome.offset)
        self.acknowledged += 1
        self.acknowledged_size += size
        now_s = asyncio.get_running_loop().time()
        gap_s = now_s - self._last_s[outcome.partition]
        if gap_s > self._longest_gap_s[outcome.partition]:
            self._longest_gap_s[outcome.partition] = gap_s
        self._last_s[outcome.partition] = self.ended_s = now_s

    def forget_gaps(self) -> None:
        """Measure gaps from now on; one that has begun counts in full."""
        self._longest_gap_s = [0.0] * len(self._longest_gap_s)

    @property
    def gaps_s(self) -> list[float]:
        """Longest time between two acknowledgements of each partition since `forget_gaps`."""
        return list(self._longest_gap_s)


def _partition(name: str, partition_count: int) -> int:
    """Return where Kafka's default partitioner sends a key; once per file, not per line."""
    return int(murmur2(name.encode()) & 0x7FFFFFFF) % partition_count
