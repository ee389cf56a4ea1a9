"""The groups of one coordinator partition, with their offsets, deadlines and appends in flight.

Everything that a shard keeps is here; `group_shard` and `offset_requests` change it, `group_view`
reads it. A group exists as long as it holds anything: members, stored metadata, offsets, or ids
that were handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from broker.coordinator.core.coordinator_types import Append, Ticket
from broker.coordinator.core.wakes import Wakes
from broker.errors import UnknownMember
from broker.groups.core.group import Group
from broker.groups.core.group_members import MemberBytes
from broker.groups.core.group_types import (
    GroupConfig,
    GroupEffects,
    ShardEffect,
    ShardEffects,
    Store,
)
from broker.groups.core.offset_changes import OffsetChanges
from broker.groups.core.offset_records import group_record


class GroupTable:
    """Groups by id."""

    def __init__(self, config: GroupConfig, new_member_id: Callable[[str], str]) -> None:
        self.offsets = OffsetChanges(self._new_ticket)
        self.wakes = Wakes()
        self.member_bytes = MemberBytes()
        """What the members of all groups gave us to keep."""
        self._config = config
        self._new_member_id = new_member_id
        self._groups: dict[str, Group] = {}
        self._stores: dict[Ticket, str] = {}  # whose metadata is on its way into the log
        self._last_ticket = 0

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> Group | None:
        """Return a group, None if there is none."""
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        """Return a group, an empty one if there was none."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(
                group_id,
                self._config,
                new_member_id=self._new_member_id,
                new_ticket=self._new_ticket,
                member_bytes=self.member_bytes,
            )
        return group

    def of_member(self, group_id: str, member_id: str) -> Group:
        """Return the group that a member says it is in. Raises UnknownMember if there is none."""
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMember(member_id)
        return group

    def forget(self, group_id: str) -> None:
        """Remove a group."""
        del self._groups[group_id]
        self.wakes.forget(group_id)

    def note(self, group_ids: Iterable[str]) -> None:
        """After a change: forget groups that hold nothing, make sure others are woken in time."""
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is None:
                continue
            is_bare = group.is_unused() and group.stored is None
            if is_bare and not (self.offsets.of(group_id) or self.offsets.unstable(group_id)):
                self.forget(group_id)
            else:
                self.wakes.note(group_id, group.next_deadline())

    def shard_effects(self, group: Group, effects: GroupEffects) -> ShardEffects:
        """Turn a group's effects into the shard's, and note the group."""
        found: list[ShardEffect] = []
        for effect in effects:
            if isinstance(effect, Store):
                self._stores[effect.ticket] = group.group_id
                record = group_record(group.group_id, effect.metadata)
                found.append(Append(effect.ticket, (record,)))
            else:
                found.append(effect)
        self.note((group.group_id,))
        return found

    def pop_store(self, ticket: Ticket) -> Group | None:
        """Return the group whose metadata an append carried, None if it carried something else."""
        group_id = self._stores.pop(ticket, None)
        return None if group_id is None else self._groups[group_id]

    def drop_stores(self) -> None:
        """Forget which appends are in flight: the shard is given up."""
        self._stores.clear()

    def check(self) -> None:
        """Assert the invariants of all groups and of the deadline order."""
        for group in self._groups.values():
            group.check()
        kept = sum(member.kept_bytes for group in self for member in group.members)
        assert self.member_bytes.held == kept
        self.offsets.check()
        self.wakes.check({name: group.next_deadline() for name, group in self._groups.items()})

    def _new_ticket(self) -> Ticket:
        self._last_ticket += 1
        return Ticket(self._last_ticket)
