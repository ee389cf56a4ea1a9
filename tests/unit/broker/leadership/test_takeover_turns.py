"""Which takeovers are in progress at a time, and which of the others begin next."""

from __future__ import annotations

import asyncio
from uuid import UUID

from broker.leadership.awaited_partitions import Key
from broker.leadership.ownership import TakeoverTurns


def key(index: int) -> Key:
    return UUID(int=7), index


class Takeovers:
    """Takeovers that last until they are told to end."""

    def __init__(self, turns: TakeoverTurns) -> None:
        self.begun: list[int] = []
        self._turns = turns
        self._ends: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def start(self, *indexes: int, is_wanted: bool = False) -> None:
        for index in indexes:
            self._ends[index] = asyncio.Event()
            self.tasks[index] = asyncio.create_task(self._run(index, is_wanted=is_wanted))
            await settled()

    async def end(self, *indexes: int) -> None:
        for index in indexes:
            self._ends[index].set()
            await settled()

    async def cancel(self, index: int) -> None:
        self.tasks[index].cancel()
        await asyncio.wait([self.tasks[index]])

    async def _run(self, index: int, *, is_wanted: bool) -> None:
        async with self._turns.turn(key(index), is_wanted=is_wanted):
            self.begun.append(index)
            await self._ends[index].wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_at_a_time_and_in_order() -> None:
    takeovers = Takeovers(TakeoverTurns(2))
    await takeovers.start(0, 1, 2, 3)
    assert takeovers.begun == [0, 1]
    await takeovers.end(1)
    assert takeovers.begun == [0, 1, 2]
    await takeovers.end(0, 2, 3)
    assert takeovers.begun == [0, 1, 2, 3]
    await takeovers.start(4, 5, 6)
    assert takeovers.begun[4:] == [4, 5], "all turns are free again, and no more than these"


async def test_what_is_wanted_begins_before_the_others_and_in_order() -> None:
    turns = TakeoverTurns(1)
    takeovers = Takeovers(turns)
    await takeovers.start(0, 1, 2, 3, 4)
    await takeovers.start(5, is_wanted=True)
    turns.want(key(3))
    turns.want(key(3))
    turns.want(key(2))
    turns.want(key(0))
    turns.want(key(9))
    await takeovers.end(0, 5, 3, 2, 1, 4)
    assert takeovers.begun == [0, 5, 3, 2, 1, 4]


async def test_who_gives_up_in_line_takes_no_turn() -> None:
    turns = TakeoverTurns(1)
    takeovers = Takeovers(turns)
    await takeovers.start(0, 1, 2, 3)
    turns.want(key(2))
    await takeovers.cancel(2)
    await takeovers.cancel(1)
    await takeovers.end(0)
    assert takeovers.begun == [0, 3]
    await takeovers.cancel(3)
    await takeovers.start(4)
    assert takeovers.begun == [0, 3, 4]


async def test_a_turn_goes_on_to_the_next_if_its_taker_gives_up_at_that_moment() -> None:
    turns = TakeoverTurns(1)
    takeovers = Takeovers(turns)
    await takeovers.start(0, 1, 2)
    takeovers._ends[0].set()
    await asyncio.sleep(0)
    assert takeovers.begun == [0], "1 has the turn, and did not run yet"
    takeovers.tasks[1].cancel()
    await settled()
    assert takeovers.begun == [0, 2]
    await takeovers.end(2)
    await takeovers.start(3, 4)
    assert takeovers.begun == [0, 2, 3]
