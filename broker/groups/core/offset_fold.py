"""The offsets of all groups of a coordinator, as the durable log says: committed and pending ones.

COPY-BEHIND  A copied offset that a transaction may still change is marked so: it counts only if
             the log that is left holds no other, and it ends nothing that is pending; for it
             may stand behind records that are newer than what it copies. What is pending is not
             copied: the log is kept from the oldest such record on (`GroupView.kept_from`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.coordinator.core.coordinator_types import TransactionalRecord
from broker.groups.core.group_offsets import GroupOffsets, TopicPartition
from broker.groups.core.offset_records import OffsetEntry
from broker.groups.core.pending_offsets import PendingOffset, PendingOffsets
from client.ids import ProducerId


class OffsetFold:
    """Offsets by group id; what is not there is empty."""

    def __init__(self) -> None:
        self.pending = PendingOffsets()
        self._offsets: dict[str, GroupOffsets] = {}
        self._copied: dict[tuple[str, TopicPartition], None] = {}
        """While the log is read: offsets that are known from copies alone."""

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._offsets, *self.pending)))

    def of(self, group_id: str) -> GroupOffsets:
        """Return a group's offsets, to be read only."""
        return self._offsets.get(group_id) or GroupOffsets()

    def replay(self, entry: OffsetEntry, *, is_copy: bool = False) -> None:
        """Take over a durable record, which ends what is pending; or a marked copy."""
        key = TopicPartition(entry.topic, entry.partition)
        place = entry.group_id, key
        offsets = self._offsets.setdefault(entry.group_id, GroupOffsets())
        if not is_copy:
            self.pending.overtake(*place)
            offsets.replay(*key, entry.committed)
        elif place in self._copied or offsets.get(*key) is None:
            self._copied[place] = None
            offsets.replay(*key, entry.committed)
        self._tidy(entry.group_id)

    def replay_pending(self, entry: OffsetEntry, record: TransactionalRecord) -> None:
        """Take over a durable record of a transaction, whose contents are `entry`."""
        key = TopicPartition(entry.topic, entry.partition)
        if entry.committed is None:
            self.pending.drop(record.producer_id, entry.group_id, key)
        else:
            pending = PendingOffset(entry.committed, record.producer_epoch, record.offset)
            self.pending.put(record.producer_id, entry.group_id, key, pending)

    def end_transaction(
        self, producer_id: ProducerId, *, is_commit: bool, epoch_max: int
    ) -> list[str]:
        """A producer's marker is durable; return the groups that had something pending."""
        groups = self.pending.groups_of(producer_id)
        published = self.pending.end(producer_id, is_commit=is_commit, epoch_max=epoch_max)
        for group_id, key, committed in published:
            self._copied.pop((group_id, key), None)
            self._offsets.setdefault(group_id, GroupOffsets()).replay(*key, committed)
        return groups

    def loaded(self) -> None:
        """The log was read to its end."""
        self._copied.clear()

    def sent(self, group_id: str, keys: Sequence[TopicPartition]) -> None:
        """Records about these partitions are on their way into the log."""
        self._offsets.setdefault(group_id, GroupOffsets()).sent(keys)

    def settled(self, group_id: str, keys: Sequence[TopicPartition]) -> None:
        """Those records are replayed, or certainly not in the log."""
        self._offsets[group_id].settled(keys)
        self._tidy(group_id)

    def check(self) -> None:
        """Assert the invariants."""
        self.pending.check()
        assert all(self._offsets.values())

    def _tidy(self, group_id: str) -> None:
        if not self._offsets[group_id]:
            del self._offsets[group_id]
