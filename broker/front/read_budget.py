"""Limits the record bytes that all fetches together may have read from bookies and not answered.

Otherwise consumers that lag behind could ask for more than memory holds: every fetch asks for its
maximum. The bytes are taken before the read, and given back when the answer leaves or is dropped;
from then on they count as unread answers (`server.py`). Who must have bytes to make progress waits
for them, in the order of asking; nobody overtakes.
"""

from __future__ import annotations

import asyncio
from collections import deque


class ReadBudget:
    """A number of bytes that is taken and given back."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Take bytes if they are left, and nobody waits for them."""
        if self._waiting or not self._has_room(size):
            return False
        self.taken += size
        return True

    async def acquire(self, size: int) -> None:
        """Take bytes, as soon as they are left. More than there can be are had alone."""
        if self.take(size):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give(size)
            else:
                self._waiting.remove((size, granted))
                self._grant()
            raise

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.taken -= size
        assert self.taken >= 0
        self._grant()

    def keep(self, size: int, kept: int) -> None:
        """Of the bytes taken for a read, only `kept` are held on: give the others back.

        A batch larger than was asked for makes it more.
        """
        self.taken += kept
        self.give(size)

    def _has_room(self, size: int) -> bool:
        return not self.taken or self.taken + size <= self.bytes_max

    def _grant(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size, granted = self._waiting[0]
            if granted.done():
                return  # whoever waited was cancelled, and goes on with the next when it runs
            self._waiting.popleft()
            self.taken += size
            granted.set_result(None)
