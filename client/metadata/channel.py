"""One direction of a simulated connection: messages arrive in order, each after a delay.

Only `memory.py` uses it. The delays may vary from message to message; a message never overtakes
an earlier one. `cut` drops everything that is on its way.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from functools import partial


class Channel:
    """Carries calls to one side, which runs in `context`."""

    def __init__(self, latency: Callable[[], float], context: contextvars.Context) -> None:
        self._latency = latency
        self._context = context
        self._messages: deque[Callable[[], None]] = deque()
        self._due_s = 0.0
        self._cut_count = 0

    def send(self, message: Callable[[], None]) -> None:
        """Call `message` on the other side after the latency, and after all sent before."""
        loop = asyncio.get_running_loop()
        self._messages.append(message)
        now_s = loop.time()
        self._due_s = max(self._due_s, now_s + self._latency())
        arrive = partial(self._arrive, self._cut_count)
        if self._due_s <= now_s:
            loop.call_soon(arrive, context=self._context)
        else:
            loop.call_at(self._due_s, arrive, context=self._context)

    def cut(self) -> None:
        """Drop what is on its way; later messages travel on a new connection."""
        self._cut_count += 1
        self._messages.clear()
        self._due_s = 0.0

    def _arrive(self, cut_count: int) -> None:
        # Equal due times leave the timer order open; taking the oldest message keeps the order.
        if cut_count == self._cut_count:
            self._messages.popleft()()
