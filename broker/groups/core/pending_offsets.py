"""Offsets that transactions have committed and that nobody sees before their markers.

A transaction's offsets are records of the group's log like any other, but in its producer's
transactional batches. They are *pending* until the producer's marker is durable: a COMMIT publishes
them, an ABORT drops them. Two rules decide between a pending offset and others of its partition:

    NEWER-WINS  A plain commit, or a removal, that comes later in the log ends what is pending: it
                could never become the group's offset any more, so nobody needs to wait for it.
    PUBLISHED   So does another transaction's offset that comes later and is published first.

So whatever is pending is newer than what is committed. Kafka keeps the partition unstable until the
marker in both cases; what is published is the same.

Source: KIP-98, KIP-447; Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.groups.core.group_offsets import TopicPartition
from broker.groups.core.group_types import CommittedOffset
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.control_batch import Marker

EPOCH_MAX: Final = 0x7FFF


class PendingOffset(NamedTuple):
    """An offset of an open transaction."""

    committed: CommittedOffset
    producer_epoch: int
    position: Offset
    """Of its record in the group's log."""


class HeardMarker(NamedTuple):
    """A marker that a partition has said to be written: now, or long ago.

    `epoch_max` is the highest producer epoch that it can be about: of old ones, the next
    transaction has a greater one, or is not open before the marker is confirmed.
    """

    marker: Marker
    epoch_max: int


class Published(NamedTuple):
    """An offset whose transaction has committed."""

    group_id: str
    key: TopicPartition
    committed: CommittedOffset


_Place = tuple[str, TopicPartition]


class PendingOffsets:
    """What is pending in all groups of a coordinator partition."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, dict[ProducerId, PendingOffset]]] = {}
        self._producers: dict[ProducerId, dict[_Place, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def __contains__(self, place: _Place) -> bool:
        group_id, key = place
        return key in self._groups.get(group_id, ())

    def __iter__(self) -> Iterator[str]:
        """Walk the groups that have any."""
        return iter(list(self._groups))

    def of(self, group_id: str) -> Iterator[tuple[TopicPartition, ProducerId, PendingOffset]]:
        """Walk what is pending in a group."""
        for key, producers in self._groups.get(group_id, {}).items():
            for producer_id, pending in producers.items():
                yield key, producer_id, pending

    def keys(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions of a group for which something is pending."""
        return list(self._groups.get(group_id, ()))

    def groups_of(self, producer_id: ProducerId) -> list[str]:
        """Return the groups in which a producer has something pending."""
        places = self._producers.get(producer_id, ())
        return list(dict.fromkeys(group_id for group_id, _ in places))

    def first_position(self) -> Offset | None:
        """Return where the oldest of all records lies that is pending."""
        positions = (
            pending.position for group_id in self._groups for _, _, pending in self.of(group_id)
        )
        return min(positions, default=None)

    def put(
        self, producer_id: ProducerId, group_id: str, key: TopicPartition, pending: PendingOffset
    ) -> None:
        """Take over a durable record of a transaction; it replaces an older one of the same."""
        self._groups.setdefault(group_id, {}).setdefault(key, {})[producer_id] = pending
        self._producers.setdefault(producer_id, {})[group_id, key] = None

    def drop(self, producer_id: ProducerId, group_id: str, key: TopicPartition) -> None:
        """Forget what one producer has pending for a partition, if anything."""
        producers = self._groups.get(group_id, {}).get(key, {})
        if producers.pop(producer_id, None) is None:
            return
        places = self._producers[producer_id]
        del places[group_id, key]
        if not places:
            del self._producers[producer_id]
        if not producers:
            keys = self._groups[group_id]
            del keys[key]
            if not keys:
                del self._groups[group_id]

    def overtake(self, group_id: str, key: TopicPartition, position: Offset | None = None) -> None:
        """Something was committed or removed later than what is pending: NEWER-WINS.

        With `position`, only what lies before it is ended: PUBLISHED.
        """
        producers = self._groups.get(group_id, {}).get(key)
        if not producers:
            return
        for producer_id, pending in list(producers.items()):
            if position is None or pending.position < position:
                self.drop(producer_id, group_id, key)

    def end(
        self, producer_id: ProducerId, *, is_commit: bool, epoch_max: int = EPOCH_MAX
    ) -> list[Published]:
        """The producer's transaction has ended; return what becomes visible by that.

        `epoch_max`: what is pending with a greater producer epoch is of the next transaction.
        """
        published: list[Published] = []
        for group_id, key in list(self._producers.get(producer_id, ())):
            pending = self._groups[group_id][key][producer_id]
            if pending.producer_epoch > epoch_max:
                continue
            self.drop(producer_id, group_id, key)
            if is_commit:
                self.overtake(group_id, key, pending.position)
                published.append(Published(group_id, key, pending.committed))
        return published

    def check(self) -> None:
        """Assert that both indexes say the same."""
        places = {
            (producer_id, group_id, key)
            for group_id, keys in self._groups.items()
            for key, producers in keys.items()
            for producer_id in producers
        }
        assert places == {
            (producer_id, *place)
            for producer_id, found in self._producers.items()
            for place in found
        }
        assert all(self._groups.values()) and all(self._producers.values())
