"""Which takeovers are in progress at a time, and which of the others begin next.

Those that a request waits for begin before the others: when a broker has thousands of partitions to
open, clients that are there already wait for the ones that they use, and not for all. Both kinds
begin in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.leadership.awaited_partitions import Key


class TakeoverTurns:
    """The turns of one broker."""

    def __init__(self, count_max: int) -> None:
        """`count_max`: so many takeovers are in progress at most."""
        self._free = count_max
        self._wanted: dict[Key, asyncio.Future[None]] = {}
        """Those that requests wait for."""
        self._others: dict[Key, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, key: Key, *, is_wanted: bool) -> AsyncIterator[None]:
        """Wait for the turn of a partition's takeover, which lasts until the context is left.

        `is_wanted`: whether a request waits for it.
        """
        if self._free:
            self._free -= 1
        else:
            await self._stand_in_line(self._wanted if is_wanted else self._others, key)
        try:
            yield
        finally:
            self._pass_on()

    def want(self, key: Key) -> None:
        """A request waits for a partition now: if its takeover has not begun, it is brought
        forward."""
        turn = self._others.pop(key, None)
        if turn is not None:
            self._wanted[key] = turn

    async def _stand_in_line(self, line: dict[Key, asyncio.Future[None]], key: Key) -> None:
        turn = line[key] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has become our turn in the meantime
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """A turn is over: the next one begins."""
        for line in (self._wanted, self._others):
            while line:
                turn = line.pop(next(iter(line)))
                if not turn.done():  # else its task was cancelled
                    turn.set_result(None)
                    return
        self._free += 1
