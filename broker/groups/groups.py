"""Finds the coordinator of a group, and holds the coordinators of this broker.

The internal topic `__consumer_offsets` is created when it is first needed. Whoever leads one of its
partitions coordinates the groups in it (`broker/groups/coordinator.py`).

Offsets go with their topic. A coordinator acts as soon as the cluster's view loses a topic, or
shows its name with another id. A sweep finds topics that were deleted while no coordinator was
looking: a topic that is missing in two sweeps in a row and in the metadata store, or offsets
clearly older than the topic that now has the name.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Final
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.config import BrokerConfig
from broker.coordinator.coordinators import Coordinators, accepted_before
from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.coordinator.internal_topic import InternalTopic
from broker.coordinator.runtime import Phase
from broker.errors import NotCoordinator
from broker.groups.commit_order import CommitOrder
from broker.groups.coordinator import Coordinator
from broker.groups.core.group_types import GroupConfig, GroupState
from broker.groups.group_room import GroupRoom
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
        self.room = GroupRoom(self, config.group_members_bytes_max)
        self.last_connection: Callable[[], ConnectionId] = lambda: ConnectionId(-1)
        """Asked at each takeover for the number of the newest connection that was accepted."""
        self._sweeper: asyncio.Task[None] | None = None
        self._topic_ids: dict[str, UUID] = {}
        self._missing: frozenset[str] = frozenset()

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the cluster's topics from now on."""
        self._topic_ids = self._current_ids()
        self._cluster.add_listener(self._on_cluster_changed)
        if self._config.internal_topics_at_start:
            self._topic.prepare()
        self._sweeper = background.keep(self._sweep, "offset-sweep")

    def configure(self, limits: GroupConfig) -> None:
        """Take other limits from now on, for all groups."""
        self._limits.take(limits)

    def close(self) -> None:
        """Stop serving all groups."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._topic.close()
        self._coordinators.close()

    def _make(self, partition: Partition) -> Coordinator:
        return Coordinator(
            partition,
            self._limits,
            clock=self._clock,
            new_member_id=self._new_member_id,
            copy_bytes_min=self._config.group_log_copy_bytes,
            order=CommitOrder(accepted_before(partition, self.last_connection)),
            on_rebalance=self._count_rebalance,
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

        Raises as `TransactionalPartition.write_marker`, and GroupError.
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

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(int=self._rng.getrandbits(128), version=4)}"

    # --- deleted topics -----------------------------------------------------------------------

    def _current_ids(self) -> dict[str, UUID]:
        return {name: topic.topic_id for name, topic in self._cluster.topics.items()}

    def _on_cluster_changed(self) -> None:
        before, self._topic_ids = self._topic_ids, self._current_ids()
        for name, topic_id in before.items():
            if self._topic_ids.get(name) != topic_id:
                for coordinator in self.coordinators():
                    coordinator.delete_topic(name)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self._sweep_once()
            except MetadataError as error:
                _LOG.warning("groups.sweep_put_off error=%r", error)

    async def _sweep_once(self) -> None:
        missing: set[str] = set()
        for coordinator in self.coordinators():
            if coordinator.phase is not Phase.ACTIVE:
                continue
            oldest = await Turns().run(coordinator.last_view.oldest_commits())
            for name, oldest_ms in oldest.items():
                topic = self._cluster.topics.get(name)
                if topic is None:
                    missing.add(name)
                elif oldest_ms < topic.created_ms - CLOCK_SKEW_MS:
                    before_ms = topic.created_ms - CLOCK_SKEW_MS
                    coordinator.delete_topic(name, before_ms=before_ms)
        for name in sorted(missing & self._missing):
            if await self._cluster.look_for_topic(name) is None:
                _LOG.info("groups.orphaned_offsets topic=%s", name)
                for coordinator in self.coordinators():
                    coordinator.delete_topic(name)
        self._missing = frozenset(missing)
