"""Hands calls of another thread to the event loop, in order, and wakes it once for a burst.

Covers the crossing from kazoo's connection thread, without a lock: whether the loop knows is
cleared before the calls are looked at, and set after there is one more, so none is overlooked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)


class LoopInbox:
    """The calls of one thread. `open` before the first."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._calls: deque[Callable[[], object]] = deque()
        self._is_noticed = False

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run what is put here on `loop`."""
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """Run `call` on the event loop, after everything put before. From any thread."""
        self._calls.append(call)
        if not self._is_noticed:
            self._is_noticed = True
            self._notice()

    def _notice(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._empty)
        except RuntimeError:
            _log.debug("metadata.loop_closed")

    def _empty(self) -> None:
        self._is_noticed = False
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            if self._calls:  # one of them failed: the loop tells, and the others have their turn
                self._notice()
