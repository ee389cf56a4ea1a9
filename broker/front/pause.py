"""Whether a connection may begin its next request: not behind some, nor while throttled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from client.wire.kafka.connection import Slot


class Pause:
    """One connection's."""

    __slots__ = ("_held_by", "_loop", "_on_over", "_timer", "_until_s", "is_muted", "is_throttled")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_over: Callable[[], None]) -> None:
        """`on_over` is called once a throttled connection may go on."""
        self._loop = loop
        self._on_over = on_over
        self._held_by: Slot | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self.is_muted = False
        """Whether a request under way lets none begin behind it."""
        self.is_throttled = False
        """Whether none may begin for a while. Both are fields: every request asks."""

    def hold(self, slot: Slot) -> None:
        """Begin no request until this one is answered, and its wait is over. While one holds the
        connection none can begin that would hold it too."""
        self._held_by = slot
        self.is_throttled = True

    def on_answer(self, slot: Slot) -> None:
        """A request is answered: begin no other for as long as it says."""
        if slot is self._held_by:
            self._held_by = None
        elif not slot.throttle_ms:
            return
        self._until_s = max(self._until_s, self._loop.time() + slot.throttle_ms / 1000)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._until_s, self._end)
        self.is_throttled = True

    def close(self) -> None:
        """The connection is gone, and is not kept by us."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_over = _nothing

    def _end(self) -> None:
        self._timer = None
        if self._held_by is None:
            self.is_throttled = False
            self._on_over()


def _nothing() -> None:
    """Nobody waits any more."""
