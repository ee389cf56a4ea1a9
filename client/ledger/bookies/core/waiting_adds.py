"""Adds that wait for room on one connection to a bookie: each ledger's in order, ledgers in turns.

A ledger that adds much fills the room and then the queue. With one queue for all, an entry of a
ledger that adds one a second would wait for everything before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class WaitingAdds(Generic[T]):
    """What waits, by ledger; the first ledger's turn is next."""

    __slots__ = ("_queues", "count")

    def __init__(self) -> None:
        self._queues: dict[int, deque[T]] = {}
        self.count = 0
        """How many wait. A field: every add and every answer asks."""

    def __iter__(self) -> Iterator[T]:
        for queue in self._queues.values():
            yield from queue

    def push(self, ledger_id: int, add: T) -> None:
        """Wait behind those of the same ledger."""
        self._queues.setdefault(ledger_id, deque()).append(add)
        self.count += 1

    @property
    def first(self) -> T:
        """Whose turn it is."""
        return next(iter(self._queues.values()))[0]

    def pop(self) -> T:
        """Return whose turn it is, who waits no longer; the next turn is another ledger's."""
        ledger_id, queue = next(iter(self._queues.items()))
        del self._queues[ledger_id]
        add = queue.popleft()
        if queue:
            self._queues[ledger_id] = queue
        self.count -= 1
        return add

    def clear(self) -> None:
        """Nobody waits any longer."""
        self._queues.clear()
        self.count = 0
