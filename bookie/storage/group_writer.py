"""Writes the log group by group: one at a time, and the next as soon as that one is durable.

The open group is written when the turn of the loop that began it is over, so that what arrives
together is written together. `core/group_commit.py` says which requests a group answers; here the
disk is asked, and its answer carried on:

    synced         the group's waiters get OK, and it goes to the index
    disk full      it and what was accepted behind it are lost, the log stays as it was
    other error    what is durable is unknown: whoever owns this ends it with `stop`
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from bookie.errors import DiskFull
from bookie.metrics import BookieMetrics
from bookie.storage.core.append_log import AppendLog, LogWrite
from bookie.storage.core.group_commit import Group, GroupCommit, OnDone
from bookie.storage.disk import Disk
from client.wire.bookkeeper.messages import Status

logger = logging.getLogger(__name__)


class GroupWriter:
    """Group commit on one log."""

    def __init__(
        self,
        log: AppendLog,
        disk: Disk,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: BookieMetrics,
        on_durable: Callable[[Group, LogWrite], None],
        on_lost: Callable[[list[Group]], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_durable` follows a group's answers; `on_lost` gets those that found no space, oldest
        first, and answers them.
        """
        self.commit = GroupCommit(log.group)
        self.on_open: Callable[[], None] = lambda: None
        """Called when a group is on its way and another one was opened, before any is durable: what
        waits may go into it meanwhile."""
        self.began_s = float("-inf")
        """When the last group began to be written, by the metrics' stopwatch."""
        self.written_bytes = 0
        """Of all groups, durable or not."""
        self._log = log
        self._disk = disk
        self._loop = loop
        self._metrics = metrics
        self._on_durable = on_durable
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._start_planned = False
        self._opened_at_s = 0.0
        self._idle: asyncio.Future[None] | None = None
        self._is_stopped = False

    def plan_start(self) -> None:
        """Write the open group when this turn of the loop is over, unless one is in flight."""
        if not self._start_planned and self.commit.in_flight is None:
            self._start_planned = True
            self._opened_at_s = self._metrics.stopwatch()
            self._loop.call_soon(self._begin)

    async def drain(self) -> None:
        """Wait until everything accepted is answered."""
        if not self._is_idle():
            self._idle = self._loop.create_future()
            await self._idle

    def stop(self) -> list[OnDone]:
        """Write nothing more; return who waits for an answer."""
        self._is_stopped = True
        in_flight = self.commit.in_flight
        waiters = [*(in_flight.waiters if in_flight else ()), *self.commit.open.waiters]
        self.commit.open.waiters.clear()
        self._tell_idle()
        return waiters

    def _begin(self) -> None:
        self._start()
        if self.commit.in_flight is not None:
            self.on_open()

    def _start(self) -> None:
        self._start_planned = False
        if self._is_stopped or self.commit.in_flight is not None or self._log.is_empty:
            return
        write = self._log.take()
        group = self.commit.start()
        assert group.number == write.group, "log and commit agree on the open group"
        done = self._disk.commit(write)
        self.began_s = now_s = self._metrics.stopwatch()
        self.written_bytes += write.size
        done.add_done_callback(partial(self._written, write, self._opened_at_s, now_s))
        self._opened_at_s = now_s

    def _written(
        self, write: LogWrite, opened_at_s: float, started_at_s: float, done: asyncio.Future[None]
    ) -> None:
        error = done.exception()
        if self._is_stopped:
            return
        if isinstance(error, DiskFull):
            self._give_up(write, error)
            return
        if error is not None:
            self._on_failed(error)
            return
        group = self.commit.synced()
        self._start()
        for on_done in group.waiters:
            on_done(Status.OK)
        self._metrics.group_written(group, write.size, opened_at_s, started_at_s)
        self._on_durable(group, write)
        self._tell_idle()

    def _give_up(self, write: LogWrite, error: DiskFull) -> None:
        """The disk is full: nothing that is not durable will be. The log stays as it was."""
        logger.error(
            "log.disk_full number=%d position=%d reason=%s", write.number, write.position, error
        )
        self._log.rewind(write)
        lost = self.commit.failed()
        self._metrics.lost_groups += len(lost)
        self._on_lost(lost)
        self._tell_idle()

    def _is_idle(self) -> bool:
        return self._is_stopped or (self.commit.in_flight is None and self._log.is_empty)

    def _tell_idle(self) -> None:
        if self._idle is not None and self._is_idle() and not self._idle.done():
            self._idle.set_result(None)
