"""Work whose size a peer decides, in steps: a generator that yields wherever it may pause.

Who runs an event loop takes one step in each turn (`client/node/turns.py`), so that a large request
costs its sender time and nobody else; who has no loop runs all of it at once with `finish`. Steps
are counted in items and never timed, so that a simulation divides work as a real loop does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

from client.errors import TooManyItems

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Yields between steps, returns what the work comes to."""

STEP_ITEMS: Final = 500
"""Items of a step, where one costs around ten microseconds: partitions of a request."""

STEP_RECORDS: Final = 2_000
"""And where one costs around two: records that are passed over, or their headers."""

ITEMS_UNLIMITED: Final = 1 << 31


class ItemCount:
    """The items of a message: how many it announced, and how many were dealt with in this step."""

    __slots__ = ("_announced", "_count_max", "_in_step")

    def __init__(self, count_max: int = ITEMS_UNLIMITED) -> None:
        self._count_max = count_max
        self._announced = 0
        self._in_step = 0

    def add(self, count: int) -> int:
        """Count items that a list announces, before any is looked at; return `count`.

        Raises TooManyItems.
        """
        self._announced += count
        if self._announced > self._count_max:
            raise TooManyItems(
                f"a request of {self._announced} items or more; at most"
                f" {self._count_max} are allowed"
            )
        return count

    def is_step_over(self) -> bool:
        """Say, once for each item, whether the step has had its share."""
        self._in_step += 1
        if self._in_step < STEP_ITEMS:
            return False
        self._in_step = 0
        return True


def finish(steps: Steps[T]) -> T:
    """Run all steps without a pause; return what they return."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        result: T = stop.value
        return result
