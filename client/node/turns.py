"""Shares the event loop between long pieces of work: one of them goes on in each turn.

Work that a client can make long is divided into steps (`client/wire/steps.py`). All such work of a
process waits in one queue, and each turn of the loop lets the first of it take one step; between
two steps every socket is served. So a hundred clients with huge requests slow down each other, and
anybody else by one step, whatever they sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from client.wire.steps import ItemCount, Steps

T = TypeVar("T")


class Turns:
    """A queue of calls, of which each turn of the loop makes one, or a few that are short."""

    def __init__(self, calls_max: int = 1) -> None:
        """`calls_max`: how many a turn of the loop makes. With one, what is short waits for as many
        turns as stand before it, and those of a busy loop are long."""
        self._calls_max = calls_max
        self._waiting: deque[list[Callable[[], None]]] = deque()
        self._is_planned = False
        self.taken = 0
        """Turns that were taken by somebody."""

    def on_turn(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call once, in a later turn; return a function that takes it back."""
        place = [call]
        self._waiting.append(place)
        self._plan()
        return place.clear

    async def next(self) -> None:
        """Wait for a turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancel = self.on_turn(partial(_begin, turn))
        try:
            await turn
        finally:
            cancel()

    async def run(self, steps: Steps[T]) -> T:
        """Take the first step now and each further one in a turn; return what they return."""
        try:
            while True:
                next(steps)
                await self.next()
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    def pace(self) -> Pace:
        """Return what a coroutine asks after each item of a long list."""
        return Pace(self)

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        self._is_planned = False
        waiting = self._waiting
        calls: list[list[Callable[[], None]]] = []
        while waiting and len(calls) < self._calls_max:
            place = waiting.popleft()
            if place:  # not taken back
                calls.append(place)
        if waiting:
            self._plan()
        while calls:
            place = calls.pop(0)
            if not place:
                continue  # taken back by one before
            (call,) = place
            place.clear()  # else who keeps the function that takes it back keeps itself alive
            self.taken += 1
            try:
                call()
            except BaseException:
                waiting.extendleft(reversed(calls))  # they come in the next turn
                self._plan()
                raise


class Pace:
    """Counts the items that one coroutine has dealt with, and waits for a turn now and then."""

    __slots__ = ("_items", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._items = ItemCount()

    async def item(self) -> None:
        """Deal with another item, in a further turn if this one has had its share."""
        if self._items.is_step_over():
            await self._turns.next()


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
