"""Looks up the partitions that this broker leads, or is about to lead.

Requests look them up by topic name and partition index; `ownership.py` maintains the entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from broker.errors import LeaderNotAvailable, NotLeader, UnknownTopicOrPartition
from broker.leadership.awaited_partitions import AwaitedPartitions, Key
from broker.partition.core.producer_state import RefusedBatches
from broker.partition.partition import Partition
from client.ids import BrokerId
from client.wire.kafka.batches.records import HEADER_BYTES, Buffer, parse_header


class ClusterTopics(Protocol):
    """The part of the cluster's view that lookups need."""

    def topic(self, name: str) -> TopicInfo:
        """Return a topic. Raises UnknownTopicOrPartition."""
        ...

    def preferred_leader(self, topic: TopicInfo, index: int) -> BrokerId | None:
        """Return which live broker should lead a partition."""
        ...


class Partitions:
    """Led partitions by topic name and index."""

    def __init__(
        self,
        cluster: ClusterTopics,
        awaited: AwaitedPartitions | None = None,
        refused: RefusedBatches | None = None,
    ) -> None:
        """`awaited`: partitions that requests may wait for; without it they never wait. `refused`:
        what partitions that are led for the first time are told of."""
        self._refused = refused
        self.awaited = awaited or AwaitedPartitions()
        self._cluster = cluster
        self._led: dict[tuple[str, int], Partition] = {}
        self._opening: dict[tuple[UUID, int], None] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._led.values()))

    def __len__(self) -> int:
        return len(self._led)

    @property
    def opening_count(self) -> int:
        """Number of partitions that we are about to lead."""
        return len(self._opening)

    def leader(self, topic: str, index: int) -> Partition:
        """Return the partition that we lead.

        Raises UnknownTopicOrPartition, LeaderNotAvailable (we are opening it), NotLeader (names
        the broker that should lead it).
        """
        partition = self._led.get((topic, index))
        if partition is not None and partition.is_open:
            return partition
        info = self._cluster.topic(topic)
        if not 0 <= index < info.partition_count:
            raise UnknownTopicOrPartition(f"topic {topic!r} has no partition {index}")
        leader = self._cluster.preferred_leader(info, index)
        if (info.topic_id, index) in self._opening:
            raise LeaderNotAvailable(f"this broker is about to lead {topic}-{index}", leader=leader)
        raise NotLeader(f"this broker does not lead {topic}-{index}", leader=leader)

    async def leader_soon(self, topic: str, index: int) -> Partition:
        """Like `leader`, after waiting for a takeover that is in progress. Raises the same."""
        key = self.awaited_key(topic, index)
        if key is not None:
            await self.awaited.settled(key)
        return self.leader(topic, index)

    def awaited_key(self, topic: str, index: int) -> Key | None:
        """Return the key of a partition in `awaited` if requests may wait for it."""
        if self.find(topic, index) is not None:
            return None
        try:
            key = (self._cluster.topic(topic).topic_id, index)
        except UnknownTopicOrPartition:
            return None
        return key if self.awaited.left_s(key) else None

    def find(self, topic: str, index: int) -> Partition | None:
        """Return the partition if we lead it."""
        partition = self._led.get((topic, index))
        return partition if partition is not None and partition.is_open else None

    def note_refused(self, topic: str | UUID, index: int, records: Buffer) -> None:
        """A batch was refused because we do not lead its partition, which the request names by
        the topic's name or id: what its producer has sent after it must not overtake it."""
        if self._refused is not None and len(records) >= HEADER_BYTES:
            header, now_s = parse_header(records), asyncio.get_running_loop().time()
            self._refused.note(topic, index, header, now_s)

    def opening(self, topic_id: UUID, index: int, *, is_opening: bool) -> None:
        """Note whether we are about to lead a partition. For `ownership.py` only."""
        if is_opening:
            self._opening[topic_id, index] = None
        else:
            self._opening.pop((topic_id, index), None)

    def add(self, partition: Partition) -> None:
        """Add a partition that we now lead. For `ownership.py` only."""
        self._led[partition.topic.name, partition.index] = partition
        self.awaited.end((partition.topic.topic_id, partition.index))

    def remove(self, partition: Partition) -> None:
        """Remove a partition that we no longer lead. For `ownership.py` only."""
        key = (partition.topic.name, partition.index)
        if self._led.get(key) is partition:
            del self._led[key]
