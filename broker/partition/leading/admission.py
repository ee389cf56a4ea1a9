"""Lets batches wait for room in a partition, and calls back when there is room.

A partition holds a bounded number of unconfirmed bytes. Beyond that a batch is not refused: the
caller waits, reads nothing more from its client meanwhile, and is called back when there is room.
No batch overtakes those that wait: otherwise small batches could keep a large one waiting forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.errors import Overloaded
from broker.partition.core.batch_checks import key_check
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import State
from client.ids import Clock
from client.wire.kafka.batches.records import Buffer
from client.wire.steps import Steps


class RoomWaits:
    """The batches that wait for room in one partition."""

    __slots__ = ("_next_ticket", "waiting")

    def __init__(self) -> None:
        self._next_ticket = 0
        self.waiting: dict[int, tuple[int, Callable[[], None]]] = {}
        """(size, callback) by ticket, in order. Public because every batch checks whether it is
        empty."""

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, size: int, call: Callable[[], None]) -> int:
        """Wait for room for `size` bytes, after all others; return a ticket for `cancel`."""
        self._next_ticket += 1
        self.waiting[self._next_ticket] = size, call
        return self._next_ticket

    def cancel(self, ticket: int) -> None:
        """Cancel a wait; it is no error if it has ended already."""
        self.waiting.pop(ticket, None)

    @property
    def next_size(self) -> int:
        """Size of the first batch that waits."""
        return next(iter(self.waiting.values()))[0]

    def take(self) -> Callable[[], None]:
        """Remove the first wait and return its callback."""
        return self.waiting.pop(next(iter(self.waiting)))[1]


class Admission:
    """Decides which batches may be appended to one partition now, and which have to wait."""

    __slots__ = ("_clock", "_is_planned", "_leader", "_loop", "_waits")

    def __init__(self, leader: PartitionLeader, clock: Clock) -> None:
        self._leader = leader
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waits = RoomWaits()
        self._is_planned = False

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes need not wait: it fits, and no other batch waits."""
        return not self._waits.waiting and self._leader.log.has_room(size)

    def on_room(self, size: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` once, later, when there is room for `size` bytes or the leadership ends.

        Waits end in the order in which they began. The room is only reserved during `call`. Returns
        a function that cancels the wait.
        """
        ticket = self._waits.add(size, call)
        self.look()

        def cancel() -> None:
            self._waits.cancel(ticket)
            self.look()

        return cancel

    def key_check(self, batch: memoryview) -> Steps[int]:
        """Check a batch and, if its topic requires them, the keys of its records; return how many
        records were decoded.

        Raises the `InvalidRecord` family.
        """
        return key_check(batch, self._leader.log.batch_limits, self._clock.now_ms())

    @property
    def are_keys_required(self) -> bool:
        """Whether `key_check` decodes batches."""
        return self._leader.log.batch_limits.keys_required

    def refusal(self, batch: Buffer) -> Overloaded:
        """Return the error for a batch that has waited for room in vain.

        Raises what `append` raises for a batch that would not be accepted anyway.
        """
        self._leader.check_open()
        return self._leader.log.refuse(batch, self._clock.now_ms())

    def look(self) -> None:
        """Call back waiting batches as far as there is room, in a turn of their own, so that their
        errors do not reach the caller."""
        if self._waits.waiting and not self._is_planned and self._may_admit():
            self._is_planned = True
            self._loop.call_soon(self._admit)

    def _may_admit(self) -> bool:
        if not self._waits.waiting:
            return False
        leader = self._leader
        return leader.state is not State.OPEN or leader.log.has_room(self._waits.next_size)

    def _admit(self) -> None:
        self._is_planned = False
        try:
            while self._may_admit():
                self._waits.take()()
        finally:
            self.look()
