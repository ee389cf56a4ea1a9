"""What a group has on its way into the log, and what it needs to know once that is durable.

`group_machine` acts on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.coordinator.core.coordinator_types import Ticket, Token


class AssignmentStore(NamedTuple):
    """The leader's assignment of a generation is on its way into the log."""

    generation: int


class StaticStore(NamedTuple):
    """A static member's new id is on its way into the log."""

    generation: int
    member_id: str
    old_member_id: str
    old_leader: str | None
    can_skip_assignment: bool
    token: Token


class EmptyStore(NamedTuple):
    """The end of the last generation is on its way into the log; nobody waits for it."""


PendingStore = AssignmentStore | StaticStore | EmptyStore


class PendingStores:
    """What one group has on its way into the log."""

    __slots__ = ("_new_ticket", "_stores")

    def __init__(self, new_ticket: Callable[[], Ticket]) -> None:
        self._new_ticket = new_ticket
        self._stores: dict[Ticket, PendingStore] = {}

    def __len__(self) -> int:
        return len(self._stores)

    def add(self, store: PendingStore) -> Ticket:
        """Remember a store that begins; return its ticket."""
        ticket = self._new_ticket()
        self._stores[ticket] = store
        return ticket

    def pop(self, ticket: Ticket) -> PendingStore:
        """Forget a store that is over, and return it."""
        return self._stores.pop(ticket)

    def has_assignment(self, generation: int) -> bool:
        """Whether the assignment of a generation is among them."""
        return any(
            isinstance(one, AssignmentStore) and one.generation == generation
            for one in self._stores.values()
        )

    @property
    def has_static(self) -> bool:
        """Whether a static member's new id is among them."""
        return any(isinstance(one, StaticStore) for one in self._stores.values())
