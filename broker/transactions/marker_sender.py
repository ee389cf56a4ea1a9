"""Sends a coordinator's markers until each is confirmed: the shell around `core/marker_queue.py`.

One sender serves one loading of a coordinator. If the coordinator loads again it begins a new one,
whose sessions are newer, and every decision that is not complete goes out again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.transactions.core.marker_queue import (
    Leaders,
    MarkerQueue,
    MarkerQueueConfig,
    QueueEffects,
    SendMarkers,
)
from broker.transactions.core.transaction_types import MarkerWritten, WriteMarkers
from broker.transactions.marker_link import MarkerSessions
from client.errors import QuireError
from client.node import background
from client.node.logs import AT_WILL

_LOG = logging.getLogger(__name__)


class MarkerSender:
    """The markers of one coordinator, from its loading to `close`."""

    def __init__(
        self,
        leaders: Leaders,
        sessions: MarkerSessions,
        config: MarkerQueueConfig,
        on_written: Callable[[Sequence[MarkerWritten]], None],
    ) -> None:
        self._queue: Final = MarkerQueue(leaders, config)
        self._sessions = sessions
        self._on_written = on_written
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """How many markers are not confirmed."""
        return len(self._queue)

    def add(self, decided: WriteMarkers) -> None:
        """Take the markers of a decision that is durable."""
        self._perform(self._queue.add(decided, self._loop.time()))

    def on_leaders_changed(self) -> None:
        """Address what is not on its way anew."""
        if not self._is_closed and len(self._queue):
            self._perform(self._queue.on_leaders_changed(self._loop.time()))

    def close(self) -> None:
        """Stop: what was not confirmed is the next coordinator's, or the next loading's."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._sending.values()):
            task.cancel()
        self._sessions.close()

    def _perform(self, effects: QueueEffects) -> None:
        for effect in effects:
            if isinstance(effect, SendMarkers):
                self._sending[effect.request_id] = background.run(
                    self._send(effect), f"markers to {effect.broker}"
                )
            else:
                self._on_written(effect.written)
        self._arm()

    async def _send(self, request: SendMarkers) -> None:
        try:
            outcomes = await self._sessions.send(request.broker, request.markers)
        except QuireError as error:
            _LOG.info(
                "transaction.markers_not_answered broker=%d markers=%d error=%r",
                request.broker, len(request.markers), error, extra=AT_WILL,
            )  # fmt: skip
            self._sending.pop(request.request_id)
            self._perform(self._queue.on_no_answer(request.request_id, self._loop.time()))
        else:
            self._sending.pop(request.request_id)
            now_s = self._loop.time()
            self._perform(self._queue.on_answer(request.request_id, outcomes, now_s))

    def _arm(self) -> None:
        at_s = None if self._is_closed else self._queue.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._perform(self._queue.on_deadline(self._loop.time()))
