"""What can be asked of the groups of a coordinator partition: descriptions, offsets, counts."""

from __future__ import annotations

from broker.coordinator.core.coordinator_types import CopiedRecord, LogRecord
from broker.groups.core.group_offsets import GroupOffsets, TopicPartition
from broker.groups.core.group_table import GroupTable
from broker.groups.core.group_types import GroupDescription, GroupHeadline, GroupState
from broker.groups.core.offset_records import group_record, offset_record
from broker.groups.core.pending_offsets import PendingOffset
from client.ids import Offset, ProducerId
from client.wire.steps import ItemCount, Steps


class GroupSizes:
    """Says what the members of all groups gave us to keep, in bytes."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    @property
    def held(self) -> int:
        """All of it."""
        return self._table.member_bytes.held

    def growth(self, group_id: str, member_id: str, size: int) -> int:
        """Return by how much that grows if a member gives this many bytes along now."""
        group = self._table.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return size - (0 if member is None else member.kept_bytes)


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

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that may have members."""
        return [group.group_id for group in self._table]

    def headline(self, group_id: str) -> GroupHeadline | None:
        """Return what a list shows of a group, None if there is no such group."""
        group = self._table.get(group_id)
        if group is None:
            return None
        return GroupHeadline(group_id, group.state, group.protocol_type or "", len(group.members))

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

    def oldest_commits(self) -> Steps[dict[str, int]]:
        """Return the topics for which any group keeps offsets: name -> oldest commit time, ms."""
        oldest: dict[str, int] = {}
        items = ItemCount()
        for group_id in self.ids():
            for key, committed in list(self.committed(group_id)):
                if items.is_step_over():
                    yield
                commit_ms = oldest.get(key.topic, committed.commit_ms)
                oldest[key.topic] = min(commit_ms, committed.commit_ms)
        return oldest

    def snapshot(self, group_id: str) -> list[LogRecord | CopiedRecord]:
        """Return the durable state of a group as records, without what is in flight."""
        group = self._table.get(group_id)
        if group is not None and group.state is GroupState.DEAD:
            return []
        records: list[LogRecord | CopiedRecord] = []
        if group is not None and group.stored is not None and not group.stores:
            records.append(group_record(group_id, group.stored))
        offsets, unstable = self.committed(group_id), self.unstable(group_id)
        for key, committed in offsets:
            if not offsets.is_in_flight(key):
                record = offset_record(group_id, key.topic, key.partition, committed)
                records.append(CopiedRecord(record) if key in unstable else record)
        return records

    def kept_from(self, start: Offset) -> Offset:
        """Return the offset at or before `start` from which on the log is needed: a transaction's
        offsets stay where they are until its marker."""
        first = self._table.offsets.fold.pending.first_position()
        return start if first is None else min(start, first)

    def check(self) -> None:
        """Assert the invariants of all groups and of the deadline order."""
        self._table.check()
