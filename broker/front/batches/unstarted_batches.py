"""The batches of a Produce request that are not begun yet, and what the first of them waits for.

They wait in the order of the request: for room in a partition, for the rest of the look at a
batch's keys, or for another turn of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from broker.front.batches.produce_answer import Row, frameless
from broker.partition.core.transactions.verification import ProducerTransaction
from broker.partition.partition import Partition
from client.errors import QuireError
from client.node.turns import Turns
from client.wire.kafka.answer_parts import Topic
from client.wire.steps import STEP_ITEMS, Steps


class Batch(NamedTuple):
    """A batch of the request, and the row in which its outcome belongs."""

    rows: list[Row]
    at: int
    topic: Topic
    partition: int
    records: memoryview | None
    transaction: ProducerTransaction | None


class NextTurn:
    """Nothing but a turn of the loop: many others of the request were begun in this one."""


NEXT_TURN: Final = NextTurn()

Obstacle = Partition | Steps[int] | NextTurn
"""What a batch waits for: the partition that has no room for it, the steps in which its keys are
looked at, or another turn."""


class UnstartedBatches:
    """The batches of one request, which keep their order."""

    __slots__ = ("_batches", "_cancel", "_go_on", "_turns")

    def __init__(self, turns: Turns, first: Batch, go_on: Callable[[bool], None]) -> None:
        """`go_on` is called when nothing is in the way of the first batch any more; its argument
        says whether the batch has been given room."""
        self._turns = turns
        self._batches = deque([first])
        self._go_on = go_on
        self._cancel: Callable[[], None]
        """From `wait` on."""

    @property
    def first(self) -> Batch | None:
        """The batch whose turn it is."""
        return self._batches[0] if self._batches else None

    def append(self, batch: Batch) -> None:
        """Wait behind all others."""
        self._batches.append(batch)

    def leave(self) -> None:
        """The first batch is begun."""
        self._batches.popleft()

    def wait(self, obstacle: Obstacle) -> None:
        """Call `go_on` once the first batch can be begun."""
        if isinstance(obstacle, Partition):
            records = self._batches[0].records
            size = 0 if records is None else len(records)
            self._cancel = obstacle.admission.on_room(size, self._on_room)
        elif isinstance(obstacle, NextTurn):
            self._cancel = self._turns.on_turn(partial(self._go_on, False))
        else:
            self._cancel = self._turns.on_turn(partial(self._on_step, obstacle))

    def stop(self) -> None:
        """Do not call `go_on` any more."""
        self._cancel()

    def refuse(self, refuse: Callable[[Batch], None], then: Callable[[], None]) -> None:
        """Refuse all of them, some in each turn of the loop."""
        batches = self._batches
        for _ in range(min(STEP_ITEMS, len(batches))):
            refuse(batches.popleft())
        if batches:
            self._cancel = self._turns.on_turn(partial(self.refuse, refuse, then))
        else:
            then()

    def _on_room(self) -> None:
        """The first batch has room, or its partition is led no longer."""
        assert self._batches, "who waits for room has a batch to append"
        self._go_on(True)

    def _on_step(self, steps: Steps[int]) -> None:
        """Look at more keys of the first batch."""
        assert self._batches, "whose keys are looked at waits"
        try:
            next(steps)
        except StopIteration:
            self._go_on(False)
        except QuireError as error:
            batch = self._batches.popleft()
            batch.rows[batch.at] = (batch.partition, None, frameless(error))
            self._go_on(False)
        else:
            self.wait(steps)
