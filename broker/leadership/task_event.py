"""An event that one task waits for.

`asyncio.Event` serves any number of waiting tasks, and keeps an empty deque for them: 0.8 KB, in
each partition that is led.
"""

from __future__ import annotations

import asyncio


class TaskEvent:
    """Like `asyncio.Event`, for one task at a time."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Let the task go on, now or when it waits next; until `clear`."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        """From now on waiting lasts until the next `set`."""
        self._is_set = False

    async def wait(self) -> None:
        """Return once the event was set, at once if it is."""
        if self._is_set:
            return
        assert self._waiter is None, "two tasks wait for one event"
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
