"""Keeps a coordinator's log short: appends a copy of all live state, then trims what precedes it.

What transactions that are not over have written is not copied: the log is kept from there on. The
copy consists of ordinary records, written id by id while requests go on; what may be left out
of it is explained in `broker/groups/core/group_shard.py`. The trim waits until the whole copy
is durable: a crash in between leaves a longer log and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from broker.coordinator.coordinator_log import CoordinatorLog
from broker.coordinator.core.shard import LiveState
from client.errors import QuireError
from client.ids import Clock, Offset
from client.node import background

_LOG = logging.getLogger(__name__)

COPY_GROWTH: Final = 4
"""The log also has to outgrow the last copy by this factor, so that copying stays cheap."""

COPY_EPOCHS: Final = 16
"""A log that this many leaders wrote to is copied too: each of them left it a ledger more."""

_IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024


class LogCopy:
    """Copies of one coordinator, one at a time."""

    def __init__(self, name: str, clock: Clock, *, bytes_min: int) -> None:
        """`bytes_min`: log growth after which state is copied. A load takes about 0.1 s of
        processor time per MiB of single commits."""
        self._name = name
        self._clock = clock
        self._bytes_min = bytes_min
        self._copied_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def start_if_due(self, log: CoordinatorLog, view: LiveState) -> None:
        """Start a copy if the log has grown enough."""
        if self._task is not None:
            return
        grown = log.bytes_since_copy >= max(self._bytes_min, COPY_GROWTH * self._copied_bytes)
        scattered = log.partition.leader_epoch - log.oldest_epoch >= COPY_EPOCHS
        if grown or scattered:
            self._task = background.run(self._run(log, view), f"copy {self._name}")
            self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Stop copying."""
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, _task: asyncio.Task[None]) -> None:
        self._task = None

    async def _run(self, log: CoordinatorLog, view: LiveState) -> None:
        log.bytes_since_copy = 0
        log.oldest_epoch = log.partition.leader_epoch
        try:
            start, copied = await self._copy(log, view)
            await log.partition.changes.delete_records(start)
        except QuireError as error:
            _LOG.warning("coordinator.copy_failed shard=%s error=%r", self._name, error)
            return  # the log has to grow anew before the next attempt
        self._copied_bytes = copied
        _LOG.info("coordinator.copied shard=%s bytes=%d start=%d", self._name, copied, start)

    async def _copy(self, log: CoordinatorLog, view: LiveState) -> tuple[Offset, int]:
        """Return (offset up to which the log is superfluous, bytes of the copy)."""
        # In a segment of its own, the copy lets everything before it go as whole ledgers.
        await log.partition.changes.roll()
        await log.applied(log.sent_offset)
        start = view.kept_from(log.applied_offset)
        before = log.bytes_since_copy
        for key in view.ids():
            # From the view's answer to the append nothing may happen in between.
            records = view.snapshot(key)
            if records:
                log.append(records, self._clock.now_ms(), lambda: None)
            if log.in_flight_bytes >= _IN_FLIGHT_BYTES:
                await log.applied(log.sent_offset)
        copied = log.bytes_since_copy - before
        await log.applied(log.sent_offset)
        return start, copied
