"""Limits the record bytes that all fetches together may be reading from bookies at once.

Otherwise consumers that lag behind could ask for more than memory holds: every fetch asks for its
maximum, and the bytes stay in memory until they are sent. A fetch waits in line for its first
partition, so that each makes progress in its turn, and takes what is left for the others.
"""

from __future__ import annotations

import asyncio
from collections import deque


class ReadBudget:
    """A number of bytes that is taken and given back."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Take bytes if they are left and nobody waits for them."""
        if self._line or self.taken + size > self.bytes_max:
            return False
        self.taken += size
        return True

    async def take_in_turn(self, size: int) -> None:
        """Take bytes when it is one's turn and they are left; more than there are go alone."""
        if not self._line and self._has_room(size):
            self.taken += size
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give(size)
            else:
                self._line.remove((size, granted))
                self._admit()
            raise

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.taken -= size
        assert self.taken >= 0
        self._admit()

    def _has_room(self, size: int) -> bool:
        return not self.taken or self.taken + size <= self.bytes_max

    def _admit(self) -> None:
        while self._line and self._has_room(self._line[0][0]):
            size, granted = self._line.popleft()
            self.taken += size
            granted.set_result(None)
