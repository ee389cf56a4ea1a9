"""kill -9 of one bookie after the other, while something else goes on."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from tests.interop.bookkeeper.cluster import BookieNode

_DOWN_S = 0.7
_UP_S = 1.5


class Kills:
    """How often bookies were killed so far."""

    def __init__(self) -> None:
        self.count = 0

    def one(self, node: BookieNode) -> None:
        """Kill a bookie, leave it dead for a moment, start it, let others notice."""
        node.kill()
        self.count += 1
        time.sleep(_DOWN_S)
        node.start()
        time.sleep(_UP_S)

    async def while_(self, goes_on: Callable[[], bool], nodes: Sequence[BookieNode]) -> None:
        """Kill these bookies in turn, never two at a time."""
        for node in itertools.cycle(nodes):
            if not goes_on():
                return
            await asyncio.to_thread(self.one, node)


@asynccontextmanager
async def killing(nodes: Sequence[BookieNode]) -> AsyncIterator[Kills]:
    """Kill these bookies in turn until the block ends; all of them run afterwards."""
    kills, ended = Kills(), False
    task = asyncio.get_running_loop().create_task(kills.while_(lambda: not ended, nodes))
    try:
        yield kills
    finally:
        ended = True
        await task
