"""Finds the coordinator of a group, and holds the coordinators of this broker.

The internal topic `__consumer_offsets` is created when it is first needed. Whoever leads one of its
partitions coordinates the groups in it (`broker/groups/coordinator.py`).

Offsets go with their topic. A coordinator acts as soon as the cluster's view shows the topic's name
with another id, or no longer shows it and the metadata store says that it is deleted: a view may
lack a topic for other reasons, and offsets that are gone do not come back (UNREADABLE-STAYS). A
sweep finds topics that were deleted while no coordinator was looking: a topic that is missing in
two sweeps in a row and deleted in the metadata store. If the name is another topic's by now, each
offset says by its topic's id whose it is, and the store says whether that one is gone; this is
looked at as soon as a coordinator has read its log, too. Old records name no id: there, clearly
older than the topic means that it is not its own.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.config import BrokerConfig
from broker.coordinator.coordinators import Coordinators, InternalTopic, accepted_before
from broker.coordinator.core.connection_order import CommitOrder
from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.coordinator.runtime import Phase
from broker.errors import CoordinatorNotAvailable, NotCoordinator
from broker.groups.coordinator import Coordinator
from broker.groups.core.consumer_group import Topic
from broker.groups.core.group_offsets import EndedTopic
from broker.groups.core.group_types import NO_TOPIC_ID, GroupConfig, GroupState
from broker.leadership.partitions import Partitions
from broker.partition.partition import Partition
from broker.topics.topics import Topics
from client.errors import MetadataError
from client.ids import Clock, ConnectionId, LeaderEpoch, Rng
from client.node import background
from client.node.turns import Turns
from client.wire.kafka.batches.control_batch import Marker

_LOG = logging.getLogger(__name__)

TOPIC_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    # A group's whole metadata is one record, and an entry has to fit a bookie's frame.
    "max.message.bytes": str(4 * 1024 * 1024),
}

SWEEP_S: Final = 600.0
CLOCK_SKEW_MS: Final = 600_000
"""How much older than a topic an offset must be to belong to the topic's predecessor."""
_RETRY_S: Final = 1.0


class _Lost(NamedTuple):
    """A topic that the cluster's view no longer shows."""

    topic_id: UUID
    at_ms: int
    """When it was missed."""


class ClusterTopics:
    """The topics of the cluster, for the assignments of groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.version = 0
        """Grows whenever the view of the cluster changes."""

    def get(self, name: str) -> Topic | None:
        """Return a topic, None if there is none of that name."""
        found = self._cluster.topics.get(name)
        return None if found is None else Topic(found.topic_id, found.partition_count)

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, None if there is no such topic."""
        found = self._cluster.topic_by_id.get(topic_id)
        return None if found is None else found.name

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._cluster.topics.keys()


class Groups:
    """Finds and holds coordinators. `on_opened`/`on_closed` are told of led partitions."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Topics,
        partitions: Partitions,
        config: BrokerConfig,
        *,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._limits = config.groups()
        self._clock = clock
        self._rng = rng
        self.rebalance_count = 0
        """Rebalances begun here."""
        self._topic = InternalTopic(
            cluster, topics, OFFSETS_TOPIC, config.offsets_topic_partitions, TOPIC_SETTINGS
        )
        self._coordinators = Coordinators(
            self._topic, config.node_id, self._make, partitions.awaited
        )
        self._assigned_topics = ClusterTopics(cluster)
        self.room = GroupRoom(self, config.group_members_bytes_max)
        self.last_connection: Callable[[], ConnectionId] = lambda: ConnectionId(-1)
        """Asked at each takeover for the number of the newest connection that was accepted."""
        self._sweeper: asyncio.Task[None] | None = None
        self._topic_ids: dict[str, UUID] = {}
        self._lost: dict[str, _Lost] = {}
        """Topics of which it is not known yet whether they were deleted, by name."""
        self._lost_some = asyncio.Event()
        self._asker: asyncio.Task[None] | None = None
        self._missing: frozenset[str] = frozenset()
        self._loaded_some = asyncio.Event()
        self._checker: asyncio.Task[None] | None = None

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the cluster's topics from now on."""
        self._topic_ids = self._current_ids()
        self._cluster.add_listener(self._on_cluster_changed)
        if self._config.internal_topics_at_start:
            self._topic.prepare()
        self._asker = background.keep(self._ask_for_lost, "offset-topics")
        self._sweeper = background.keep(self._sweep, "offset-sweep")
        self._checker = background.keep(self._check_loaded, "offset-topic-ids")

    def configure(self, limits: GroupConfig) -> None:
        """Take other limits from now on, for all groups."""
        self._limits.take(limits)

    @property
    def limits(self) -> GroupConfig:
        """What holds for groups, as it is now."""
        return self._limits

    def close(self) -> None:
        """Stop serving all groups."""
        for task in (self._asker, self._sweeper, self._checker):
            if task is not None:
                task.cancel()
        self._topic.close()
        self._coordinators.close()

    def _make(self, partition: Partition) -> Coordinator:
        return Coordinator(
            partition,
            self._limits,
            clock=self._clock,
            new_member_id=self._new_member_id,
            topics=self._assigned_topics,
            copy_bytes_min=self._config.group_log_copy_bytes,
            order=CommitOrder(accepted_before(partition, self.last_connection)),
            on_rebalance=self._count_rebalance,
            on_active=self._loaded_some.set,
        )

    def on_opened(self, partition: Partition) -> None:
        """This broker leads a partition now; ignored unless it is one of the internal topic."""
        self._coordinators.on_opened(partition)

    def on_closed(self, partition: Partition) -> None:
        """This broker leads a partition no longer."""
        self._coordinators.on_closed(partition)

    # --- routing ------------------------------------------------------------------------------

    async def find(self, group_id: str) -> BrokerInfo:
        """Return the broker that coordinates a group; create the internal topic if there is none.

        Raises CoordinatorNotAvailable.
        """
        return await self._topic.find(group_id)

    async def place(self, group_id: str) -> tuple[TopicInfo, int]:
        """Return the topic and the index of the partition that keeps a group's offsets; create it
        if there is none. Raises CoordinatorNotAvailable.
        """
        return await self._topic.place(group_id)

    def coordinator(self, group_id: str) -> Coordinator:
        """Return the coordinator of a group, if it is this broker.

        Raises NotCoordinator, CoordinatorLoading (it is about to be).
        """
        return self._coordinators.of(group_id)

    async def coordinator_soon(self, group_id: str) -> Coordinator:
        """Return the coordinator of a group, loaded, if this broker is or soon will be that.

        Raises as `coordinator`, when it took too long.
        """
        return await self._coordinators.soon(group_id)

    def coordinators(self) -> list[Coordinator]:
        """Return all coordinators of this broker, by partition."""
        return self._coordinators.all()

    async def write_marker(
        self,
        partition: Partition,
        marker: Marker,
        *,
        is_tv2: bool,
        leader_epoch: LeaderEpoch | None,
    ) -> None:
        """Write a marker into a partition that is a coordinator's log.

        Raises as `PartitionTransactions.write_marker`, and GroupError.
        """
        for coordinator in self.coordinators():
            if coordinator.partition is partition:
                await coordinator.write_marker(marker, is_tv2=is_tv2, leader_epoch=leader_epoch)
                return
        raise NotCoordinator(f"{partition.name} is not the log of a coordinator")

    # --- for metrics --------------------------------------------------------------------------

    def _count_rebalance(self) -> None:
        self.rebalance_count += 1

    def state_counts(self) -> dict[GroupState, int]:
        """Count the groups coordinated here by state."""
        counts = dict.fromkeys(GroupState, 0)
        for coordinator in self.coordinators():
            for state, count in coordinator.last_view.state_counts().items():
                counts[state] += count
        return counts

    def new_member_id(self) -> str:
        """Return an id for a member of the consumer protocol that has made none."""
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(int=self._rng.getrandbits(128), version=4)}"

    # --- deleted topics -----------------------------------------------------------------------

    def _current_ids(self) -> dict[str, UUID]:
        return {name: topic.topic_id for name, topic in self._cluster.topics.items()}

    def _on_cluster_changed(self) -> None:
        self._assigned_topics.version += 1
        before, self._topic_ids = self._topic_ids, self._current_ids()
        for name, topic_id in before.items():
            found = self._cluster.topics.get(name)
            if found is None:
                self._lost[name] = _Lost(topic_id, self._clock.now_ms())
                self._lost_some.set()
            elif found.topic_id != topic_id:
                # What was committed since it was made, while the view lagged, is the new one's.
                self._delete(EndedTopic(name, topic_id, found.created_ms, found.topic_id))

    def _delete(self, ended: EndedTopic) -> None:
        for coordinator in self.coordinators():
            coordinator.delete_topic(ended)

    async def _ask_for_lost(self) -> None:
        while True:
            await self._lost_some.wait()
            self._lost_some.clear()
            try:
                await self._settle_lost()
            except MetadataError as error:
                _LOG.warning("groups.deletion_put_off error=%r", error)
                await asyncio.sleep(_RETRY_S)
                self._lost_some.set()

    async def _settle_lost(self) -> None:
        """Delete the offsets of lost topics, but only if the metadata store says that they are
        deleted. Raises MetadataError: the others are still to be asked for."""
        for name, lost in list(self._lost.items()):
            is_deleted = await self._cluster.is_deleted(name, lost.topic_id)
            found = await self._cluster.look_for_topic(name) if is_deleted else None
            if self._lost.get(name) != lost:
                continue  # lost once more meanwhile: it is asked for again
            del self._lost[name]
            if found is not None:
                # As above: the view may have lagged until it lost the old one.
                ended = EndedTopic(name, lost.topic_id, found.created_ms, found.topic_id)
                self._delete(ended)
            elif is_deleted:
                self._delete(EndedTopic(name, None))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self._sweep_once()
            except MetadataError as error:
                _LOG.warning("groups.sweep_put_off error=%r", error)

    async def _sweep_once(self) -> None:
        missing = await self._remove_older_topics()
        for name in sorted(missing & self._missing):
            if await self._cluster.is_deleted(name, None):
                _LOG.info("groups.orphaned_offsets topic=%s", name)
                self._delete(EndedTopic(name, None))
        self._missing = frozenset(missing)

    async def _check_loaded(self) -> None:
        """Coordinators that have just read their logs may hold offsets of topics that ended while
        nobody was looking."""
        while True:
            await self._loaded_some.wait()
            self._loaded_some.clear()
            try:
                await self._remove_older_topics()
            except MetadataError as error:
                _LOG.warning("groups.sweep_put_off error=%r", error)
                await asyncio.sleep(_RETRY_S)
                self._loaded_some.set()

    async def _remove_older_topics(self) -> set[str]:
        """Remove what belongs to earlier topics of a name; return names that no topic has.

        Raises MetadataError.
        """
        missing: set[str] = set()
        for coordinator in self.coordinators():
            if coordinator.phase is not Phase.ACTIVE:
                continue
            commits = await Turns().run(coordinator.last_view.committed_topics())
            for name, found in commits.items():
                topic = self._cluster.topics.get(name)
                if topic is None:
                    missing.add(name)
                    continue
                for topic_id in sorted(found.topic_ids - {topic.topic_id}):
                    # Our view may lag, and this id be the newer one.
                    if await self._cluster.is_deleted(name, topic_id):
                        coordinator.delete_topic(EndedTopic(name, topic_id))
                before_ms = topic.created_ms - CLOCK_SKEW_MS
                if found.oldest_ms is not None and found.oldest_ms < before_ms:
                    coordinator.delete_topic(EndedTopic(name, NO_TOPIC_ID, before_ms))
        return missing


class GroupRoom:
    """Limits the subscriptions and assignments that a broker keeps for the members of its groups.

    A group has a limit for its members, and a request one for its size; there is none for how many
    groups there are, and what members give along stays for as long as they do. Beyond the limit a
    request is refused with an error that clients retry. Members that are there and do not grow
    stay.
    """

    def __init__(self, groups: Groups, bytes_max: int) -> None:
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
