"""The durable state of one consumer group: the fold of its records, and who owns which partition.

A coordinator that loads the log and one that wrote it come to the same state, because both apply
the same entries. Changes are prepared on a copy (`ConsumerGroup`), whose entries are applied here
when they are durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast
from uuid import UUID

from broker.groups.core.consumer_group_records import (
    ConsumerGroupEntry,
    Current,
    GroupEpoch,
    Matches,
    MemberState,
    Part,
    Partitions,
    PartValue,
    Subscriber,
    TargetEpoch,
)

V = TypeVar("V")

NOTHING = Current(0, 0, MemberState.STABLE, {}, {})
"""What a member has that has just come."""

_NO_EPOCH = GroupEpoch(0)
_NO_TARGET = TargetEpoch(0)


class ConsumerGroupState:
    """Members, their assignments, and the target that they move towards."""

    __slots__ = ("_owners", "current", "group", "matches", "members", "target_epoch", "targets")

    def __init__(self) -> None:
        self.group = _NO_EPOCH
        self.target_epoch = _NO_TARGET
        self.members: dict[str, Subscriber] = {}
        self.targets: dict[str, Partitions] = {}
        self.current: dict[str, Current] = {}
        self.matches: dict[str, Matches] = {}
        self._owners: dict[tuple[UUID, int], str] = {}

    def __bool__(self) -> bool:
        """Whether the log holds anything of the group."""
        return bool(self.group.epoch or self.target_epoch.epoch or self.members or self.matches)

    def copy(self) -> ConsumerGroupState:
        """Return another one that may be changed by itself."""
        other = type(self)()
        other.group = self.group
        other.target_epoch = self.target_epoch
        other.members = dict(self.members)
        other.targets = dict(self.targets)
        other.current = dict(self.current)
        other.matches = dict(self.matches)
        other._owners = dict(self._owners)
        return other

    def owner(self, topic_id: UUID, index: int) -> str | None:
        """Return the member that has a partition, or has to give it up and may still read it."""
        return self._owners.get((topic_id, index))

    def is_newly_held(self, topic_id: UUID, index: int, epoch: int) -> bool:
        """Whether a partition was assigned after an epoch to the member that has it."""
        owner = self._owners.get((topic_id, index))
        since = None if owner is None else self.current[owner].held_since(topic_id, index)
        return since is not None and since > epoch

    def get(self, part: Part, name: str) -> PartValue | None:
        """Return one value, None if there is none."""
        match part:
            case Part.GROUP:
                return self.group if self.group.epoch else None
            case Part.TARGET_EPOCH:
                return self.target_epoch if self.target_epoch.epoch else None
            case Part.MEMBER:
                return self.members.get(name)
            case Part.TARGET:
                return self.targets.get(name)
            case Part.CURRENT:
                return self.current.get(name)
            case Part.PATTERN:
                return self.matches.get(name)

    def apply(self, entry: ConsumerGroupEntry) -> None:
        """Take over a record."""
        name, value = entry.name, entry.value
        match entry.part:
            case Part.GROUP:
                self.group = cast(GroupEpoch, value or _NO_EPOCH)
            case Part.TARGET_EPOCH:
                self.target_epoch = cast(TargetEpoch, value or _NO_TARGET)
            case Part.MEMBER:
                _put(self.members, name, cast("Subscriber | None", value))
            case Part.TARGET:
                _put(self.targets, name, cast("Partitions | None", value))
            case Part.PATTERN:
                _put(self.matches, name, cast("Matches | None", value))
            case Part.CURRENT:
                self._disown(name)
                _put(self.current, name, cast("Current | None", value))
                self._own(name)

    def entries(self, group_id: str) -> Iterator[ConsumerGroupEntry]:
        """Yield all of it as entries, from which another one can be made."""
        if self.group.epoch:
            yield ConsumerGroupEntry(group_id, Part.GROUP, "", self.group)
        if self.target_epoch.epoch:
            yield ConsumerGroupEntry(group_id, Part.TARGET_EPOCH, "", self.target_epoch)
        for part, values in (
            (Part.MEMBER, self.members),
            (Part.TARGET, self.targets),
            (Part.CURRENT, self.current),
            (Part.PATTERN, self.matches),
        ):
            for name, value in values.items():
                yield ConsumerGroupEntry(group_id, part, name, cast(PartValue, value))

    def tombstones(self, group_id: str) -> Iterator[ConsumerGroupEntry]:
        """Yield what removes all of it, Kafka's order: what a member has, its target, the member,
        then what the group has."""
        found = list(self.entries(group_id))
        for part in (Part.CURRENT, Part.TARGET, Part.MEMBER, Part.PATTERN, Part.TARGET_EPOCH):
            for entry in found:
                if entry.part is part:
                    yield entry._replace(value=None)
        yield ConsumerGroupEntry(group_id, Part.GROUP, "", None)

    def check(self) -> None:
        """Assert that no partition has two owners, and that epochs stay below the group's."""
        owners: dict[tuple[UUID, int], str] = {}
        for name, current in self.current.items():
            for place in _places(current):
                assert owners.setdefault(place, name) == name, f"{place} has two owners"
        assert owners == self._owners
        assert self.target_epoch.epoch <= self.group.epoch
        for current in self.current.values():
            assert current.epoch <= self.target_epoch.epoch

    def _own(self, name: str) -> None:
        current = self.current.get(name)
        if current is not None:
            for place in _places(current):
                self._owners[place] = name

    def _disown(self, name: str) -> None:
        current = self.current.get(name)
        if current is not None:
            for place in _places(current):
                if self._owners.get(place) == name:
                    del self._owners[place]


def _places(current: Current) -> Iterator[tuple[UUID, int]]:
    for held in (current.assigned, current.revoking):
        for topic_id, indexes in held.items():
            for index in indexes:
                yield topic_id, index


def _put(values: dict[str, V], name: str, value: V | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
