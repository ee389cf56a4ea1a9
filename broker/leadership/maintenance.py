"""Visits every led partition once per interval: retention, rolls by age, producer expiry, and a
report of transactions that have been open for long.

The partition's cores decide what is due.
"""

from __future__ import annotations

import asyncio
import logging

from broker.errors import BrokerError
from broker.leadership.partitions import Partitions
from client.ids import Clock
from client.node import background

_LOG = logging.getLogger(__name__)


class Maintenance:
    """The task that does it."""

    def __init__(self, partitions: Partitions, clock: Clock, *, interval_s: float) -> None:
        self._partitions = partitions
        self._clock = clock
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = background.keep(self._run, "maintenance")

    async def close(self) -> None:
        """Stop the task, even in the middle of a round."""
        await background.stop(self._task)

    async def visit_all(self) -> None:
        """Make one round."""
        for partition in self._partitions:
            partition.transactions.look(self._clock.now_ms())
            try:
                await partition.changes.maintain(self._clock.now_ms())
            except BrokerError as error:
                _LOG.warning(
                    "maintenance.failed topic=%s partition=%d error=%r",
                    partition.topic.name, partition.index, error,
                )  # fmt: skip

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.visit_all()
