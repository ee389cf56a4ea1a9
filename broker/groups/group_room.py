"""Limits the subscriptions and assignments that a broker keeps for the members of its groups.

A group has a limit for its members, and a request one for its size; there is none for how many
groups there are, and what members give along stays for as long as they do. Beyond the limit a
request is refused with an error that clients retry. Members that are there and do not grow stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.errors import CoordinatorNotAvailable
from broker.groups.coordinator import Coordinator


class HasCoordinators(Protocol):
    """Whoever holds the coordinators of this broker."""

    def coordinators(self) -> Sequence[Coordinator]:
        """Return all of them."""
        ...


class GroupRoom:
    """The limit for all groups together."""

    def __init__(self, groups: HasCoordinators, bytes_max: int) -> None:
        self._groups = groups
        self._bytes_max = bytes_max

    @property
    def held(self) -> int:
        """What all members gave along, and were assigned, in bytes."""
        return sum(each.last_view.sizes.held for each in self._groups.coordinators())

    def require(self, coordinator: Coordinator, group_id: str, member_id: str, size: int) -> None:
        """Let a request pass that gives this many bytes along for a member, or for new ones.

        Raises CoordinatorNotAvailable; nothing was done then.
        """
        growth = coordinator.last_view.sizes.growth(group_id, member_id, size)
        held = self.held
        if growth > 0 and held and held + growth > self._bytes_max:
            raise CoordinatorNotAvailable(
                f"members of groups take {held} bytes already (group_members_bytes_max)"
            )
