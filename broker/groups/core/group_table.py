"""The groups of one coordinator partition, with their offsets, deadlines and appends in flight.

Everything that a shard keeps is here (`GroupTable`); `group_shard` and `offset_requests` change it.
What can be asked without changing anything is in `GroupView`. A group exists as long as it holds
anything: members, stored metadata, offsets, or ids that were handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from broker.coordinator.core.coordinator_types import Append, LogRecord, Snapshot, Ticket, Undecided
from broker.coordinator.core.wakes import Wakes
from broker.errors import GroupIdNotFound, UnknownMember
from broker.groups.core.consumer_group import ConsumerGroup, Topics
from broker.groups.core.consumer_group_description import ConsumerGroupDescription
from broker.groups.core.consumer_group_records import (
    ConsumerGroupEntry,
    encode,
    encode_share,
)
from broker.groups.core.group import Group
from broker.groups.core.group_members import MemberBytes
from broker.groups.core.group_offsets import (
    GroupOffsets,
    OffsetChanges,
    PendingOffset,
    TopicPartition,
)
from broker.groups.core.group_types import (
    NO_TOPIC_ID,
    CommittedOffset,
    GroupConfig,
    GroupDescription,
    GroupEffects,
    GroupHeadline,
    GroupState,
    GroupType,
    ShardEffect,
    ShardEffects,
    Store,
    StoreEntries,
)
from broker.groups.core.offset_records import group_record, offset_record
from broker.groups.core.share_group import ShareGroup
from client.ids import Offset, ProducerId
from client.wire.steps import ItemCount, Steps

AnyGroup = Group | ConsumerGroup


class GroupTable:
    """Groups by id: of the classic protocol, of the consumer protocol, share groups."""

    def __init__(
        self, config: GroupConfig, topics: Topics, new_member_id: Callable[[str], str]
    ) -> None:
        self.offsets = OffsetChanges(self._new_ticket, self._tombstones)
        self.wakes = Wakes()
        self.member_bytes = MemberBytes()
        """What the members of all groups gave us to keep."""
        self._config = config
        self._topics = topics
        self._new_member_id = new_member_id
        self._groups: dict[str, AnyGroup] = {}
        self._stores: dict[Ticket, str] = {}  # whose metadata is on its way into the log
        self._last_ticket = 0

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> AnyGroup | None:
        """Return a group, None if there is none."""
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> AnyGroup:
        """Return a group, an empty one of the classic protocol if there was none."""
        return self._groups.get(group_id) or self.classic(group_id)

    def classic(self, group_id: str) -> Group:
        """Return a group of the classic protocol, in the place of any other one."""
        group = self._groups.get(group_id)
        if not isinstance(group, Group):
            group = self._groups[group_id] = Group(
                group_id,
                self._config,
                new_member_id=self._new_member_id,
                new_ticket=self._new_ticket,
                member_bytes=self.member_bytes,
            )
        return group

    def consumer(self, group_id: str) -> ConsumerGroup:
        """Return a group of the consumer protocol, in the place of any other one."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or isinstance(group, ShareGroup):
            group = self._groups[group_id] = ConsumerGroup(
                group_id, self._config, self._topics, new_ticket=self._new_ticket
            )
        return group

    def share(self, group_id: str) -> ShareGroup:
        """Return a share group, in the place of any other one."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            group = self._groups[group_id] = ShareGroup(
                group_id,
                self._config,
                self._topics,
                new_ticket=self._new_ticket,
                new_incarnation=self._new_incarnation,
            )
        return group

    def of_member(self, group_id: str, member_id: str) -> Group:
        """Return the group that a member of the classic protocol says it is in.

        Raises UnknownMember if there is none.
        """
        group = self._groups.get(group_id)
        if not isinstance(group, Group):
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

    def shard_effects(self, group: AnyGroup, effects: GroupEffects) -> ShardEffects:
        """Turn a group's effects into the shard's, and note the group."""
        found: list[ShardEffect] = []
        for effect in effects:
            if isinstance(effect, Store):
                self._stores[effect.ticket] = group.group_id
                record = group_record(group.group_id, effect.metadata)
                found.append(Append(effect.ticket, (record,)))
            elif isinstance(effect, StoreEntries):
                self._stores[effect.ticket] = group.group_id
                records = tuple(record_of(group, entry) for entry in effect.entries)
                found.append(Append(effect.ticket, records))
            else:
                found.append(effect)
        self.note((group.group_id,))
        return found

    def _tombstones(self, group_id: str) -> Iterable[LogRecord]:
        """Return what removes a group from the log."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return (record_of(group, entry) for entry in group.durable.tombstones(group_id))
        return (group_record(group_id, None),)

    def pop_store(self, ticket: Ticket) -> AnyGroup | None:
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
        kept = sum(group.kept_bytes for group in self if isinstance(group, Group))
        assert self.member_bytes.held == kept
        self.offsets.check()
        self.wakes.check({name: group.next_deadline() for name, group in self._groups.items()})

    def _new_incarnation(self) -> UUID:
        return UUID(self._new_member_id("").removeprefix("-"))

    def _new_ticket(self) -> Ticket:
        self._last_ticket += 1
        return Ticket(self._last_ticket)


def record_of(group: AnyGroup, entry: ConsumerGroupEntry) -> LogRecord:
    """Return the record of what a group keeps."""
    return encode_share(entry) if isinstance(group, ShareGroup) else encode(entry)


class TopicCommits(NamedTuple):
    """What the groups keep under the name of a topic."""

    topic_ids: frozenset[UUID] = frozenset()
    """Of the topics that had the name when something was committed."""
    oldest_ms: int | None = None
    """Oldest commit time of what names no id."""

    def with_one(self, committed: CommittedOffset) -> TopicCommits:
        """Count one more."""
        if committed.topic_id == NO_TOPIC_ID:
            oldest_ms = committed.commit_ms if self.oldest_ms is None else self.oldest_ms
            return self._replace(oldest_ms=min(oldest_ms, committed.commit_ms))
        if committed.topic_id in self.topic_ids:
            return self
        return self._replace(topic_ids=self.topic_ids | {committed.topic_id})


class GroupSizes:
    """Says what the members of all groups gave us to keep, in bytes."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    @property
    def held(self) -> int:
        """All of it."""
        return self._table.member_bytes.held + sum(
            group.kept_bytes for group in self._table if isinstance(group, ConsumerGroup)
        )

    def growth(self, group_id: str, member_id: str, size: int) -> int:
        """Return by how much that grows if a member gives this many bytes along now."""
        group = self._table.get(group_id)
        return size if group is None else size - group.kept_of(member_id)


class GroupView:
    """Reads a group table; changes nothing."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self.sizes = GroupSizes(table)

    def ids(self) -> list[str]:
        """Return the ids of all groups, and of all that have offsets."""
        groups = (group.group_id for group in self._table)
        return list(dict.fromkeys((*groups, *self._table.offsets)))

    def describe(self, group_id: str) -> GroupDescription | None:
        """Describe a group, None if there is no such group."""
        group = self._table.get(group_id)
        return None if group is None else group.describe()

    def describe_consumer(self, group_id: str) -> ConsumerGroupDescription | None:
        """Describe a group of the consumer protocol, None if there is no such group."""
        group = self._table.get(group_id)
        if not isinstance(group, ConsumerGroup) or isinstance(group, ShareGroup):
            return None
        return group.describe_members()

    def describe_share(self, group_id: str) -> ConsumerGroupDescription | None:
        """Describe a share group, None if there is no such group."""
        group = self._table.get(group_id)
        return group.describe_members() if isinstance(group, ShareGroup) else None

    def incarnation_for(self, group_id: str, member_id: str) -> UUID:
        """Return what tells a share group from others of its name, for one of its members.

        Raises GroupIdNotFound, UnknownMember, CoordinatorNotAvailable.
        """
        group = self._table.get(group_id)
        if not isinstance(group, ShareGroup):
            raise GroupIdNotFound(f"there is no share group {group_id}")
        return group.incarnation_for(member_id)

    def incarnation(self, group_id: str) -> UUID | None:
        """Return what tells a share group from others of its name; None: there is none."""
        group = self._table.get(group_id)
        return group.durable.group.incarnation if isinstance(group, ShareGroup) else None

    def check_fetch(self, group_id: str, member_id: str, epoch: int) -> None:
        """Decide whether a member of the consumer protocol may ask for offsets.

        Raises UnknownMember, StaleMemberEpoch.
        """
        group = self._table.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(member_id, epoch)

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that may have members."""
        return [group.group_id for group in self._table]

    def headline(self, group_id: str) -> GroupHeadline | None:
        """Return what a list shows of a group, None if there is no such group."""
        group = self._table.get(group_id)
        if group is None:
            return None
        return GroupHeadline(
            group_id,
            group.state,
            group.protocol_type or "",
            len(group.members),
            group.group_type if isinstance(group, ConsumerGroup) else GroupType.CLASSIC,
        )

    def state_counts(self) -> dict[GroupState, int]:
        """Count groups by state, for metrics."""
        counts = dict.fromkeys(GroupState, 0)
        for group in self._table:
            counts[group.state] += 1
        return counts

    def committed(self, group_id: str) -> GroupOffsets:
        """Return the durable offsets of a group; empty for one that does not exist."""
        return self._table.offsets.of(group_id)

    def unstable(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions of a group whose offset a transaction that is not over may
        change."""
        return self._table.offsets.unstable(group_id)

    def pending(self, group_id: str) -> list[tuple[TopicPartition, ProducerId, PendingOffset]]:
        """Return what transactions that are not over have committed in a group."""
        return list(self._table.offsets.fold.pending.of(group_id))

    def committed_topics(self) -> Steps[dict[str, TopicCommits]]:
        """Return the topics for which any group keeps offsets, by name."""
        found: dict[str, TopicCommits] = {}
        items = ItemCount()
        for group_id in self.ids():
            for key, committed in list(self.committed(group_id)):
                if items.is_step_over():
                    yield
                before = found.get(key.topic, TopicCommits())
                found[key.topic] = before.with_one(committed)
        return found

    def snapshot(self, group_id: str, undecided: Undecided | None = None) -> Snapshot:
        """Return the durable state of a group, without what is in flight and what a transaction
        may still change. With `undecided`: only what of it is the newest still."""
        group = self._table.get(group_id)
        if group is not None and group.state is GroupState.DEAD:
            return Snapshot([])
        records = [] if undecided is not None or group is None else _membership_of(group)
        left: dict[TopicPartition, CommittedOffset] = {}
        offsets, unstable = self.committed(group_id), self.unstable(group_id)
        for key, committed in offsets:
            if undecided is not None and undecided.get(key) is not committed:
                continue
            if key in unstable:
                left[key] = committed
            elif not offsets.is_in_flight(key):
                records.append(offset_record(group_id, key.topic, key.partition, committed))
        return Snapshot(records, left)

    def kept_from(self, start: Offset) -> Offset:
        """Return the offset at or before `start` from which on the log is needed: a transaction's
        offsets stay where they are until its marker."""
        first = self._table.offsets.fold.pending.first_position()
        return start if first is None else min(start, first)

    def check(self) -> None:
        """Assert the invariants of all groups and of the deadline order."""
        self._table.check()


def _membership_of(group: AnyGroup) -> list[LogRecord]:
    """Return what the log has to hold of a group beside its offsets, without what is in flight."""
    if isinstance(group, ConsumerGroup):
        return [record_of(group, entry) for entry in group.settled()]
    if group.stored is None or group.stores:
        return []
    return [group_record(group.group_id, group.stored)]
