"""What a group has on its way into the log, and what it needs to know once that is durable.

`group_machine` acts on it.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.coordinator.core.coordinator_types import Token


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
