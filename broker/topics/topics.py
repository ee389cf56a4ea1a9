"""Creates, deletes and changes topics, and shows the result in this broker's view.

Rules come first (`core/topic_rules.py`), then the writes (`topic_changes.py`). Whoever calls sees
its change in this broker's view of the cluster as soon as the call returns; other brokers see it
soon after, through their watches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo
from broker.config import BrokerConfig
from broker.errors import UnknownTopicId, UnknownTopicOrPartition
from broker.topics.core import topic_rules
from broker.topics.core.topic_rules import (
    BROKER_DECIDES,
    NO_ASSIGNMENTS,
    Assignments,
    TopicDefaults,
)
from broker.topics.topic_changes import TopicChanges
from client.ids import BrokerId


class Topics:
    """Changes topics on behalf of clients, operators and the broker itself."""

    def __init__(self, cluster: Cluster, changes: TopicChanges, config: BrokerConfig) -> None:
        self._cluster = cluster
        self._changes = changes
        self.follow(config)

    def follow(self, config: BrokerConfig) -> None:
        """Take other defaults and limits from now on."""
        self._partition_count_max = config.topic_partitions_max
        self._defaults = TopicDefaults(
            partition_count=config.num_partitions,
            replication_factor=config.default_replication_factor,
            min_insync_replicas=config.default_min_insync_replicas,
            ensemble_size=config.default_ensemble_size,
            partition_count_max=config.topic_partitions_max,
            has_object_store=self._changes.has_object_store,
        )

    async def create(
        self,
        name: str,
        partition_count: int = BROKER_DECIDES,
        replication_factor: int = BROKER_DECIDES,
        config: Mapping[str, str] | None = None,
        *,
        internal: bool = False,
        assignments: Assignments = NO_ASSIGNMENTS,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Create a topic; -1 leaves a number to the broker's defaults.

        Raises InvalidTopicName, TopicExists, InvalidPartitions, InvalidReplicationFactor,
        InvalidReplicaAssignment, InvalidTopicConfig, MetadataError.
        """
        topic_rules.check_name(name)
        if not internal:
            topic_rules.check_not_internal(name)
        topic_rules.check_unused(name, self._cluster.topics)
        for replicas in assignments.values():
            topic_rules.check_replicas(replicas, self._cluster.brokers)
        shape = topic_rules.decide_shape(
            partition_count,
            replication_factor,
            config or {},
            self._defaults,
            await self._changes.bookie_count(),
        )
        if validate_only:
            return TopicInfo(
                name=name,
                topic_id=UUID(int=0),
                partition_count=shape.partition_count,
                replication_factor=shape.replication_factor,
                config=shape.config,
                internal=internal,
                assignments=assignments,
            )
        topic = await self._changes.create(name, shape, internal=internal, assignments=assignments)
        await self._cluster.look_for_topic(name)
        return topic

    async def has_default_bookies(self) -> bool:
        """Tell whether a topic created now would have the default number of copies, on the default
        number of bookies. Raises MetadataError.
        """
        defaults = self._defaults
        needed = max(defaults.replication_factor, defaults.ensemble_size)
        return await self._changes.bookie_count() >= needed

    async def delete(self, name: str, topic_id: UUID | None = None) -> TopicInfo:
        """Delete the topic that has this name now, whatever this broker's view shows; return it.

        `topic_id`: the one that is meant; None: whichever it is. Raises UnknownTopicOrPartition, or
        UnknownTopicId if an id was given: nothing was deleted, the topic is gone already. Raises
        MetadataError and RequestTimedOut: it may have happened.
        """
        try:
            topic = await self._changes.find(name)
            if topic_id is not None and topic.topic_id != topic_id:
                raise UnknownTopicOrPartition(f"topic {name!r} has id {topic.topic_id} now")
            await self._changes.delete(topic)
        except UnknownTopicOrPartition as error:
            if topic_id is None:
                raise
            raise UnknownTopicId(f"no topic has id {topic_id}: {error}") from error
        finally:
            await self._cluster.look_for_topic(name)
        return topic

    async def grow(
        self,
        name: str,
        partition_count: int,
        replicas: Sequence[tuple[BrokerId, ...]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Raise a topic's number of partitions to `partition_count`.

        `replicas`: a list for each new partition, if the plan is not to choose. Raises
        UnknownTopicOrPartition, InvalidPartitions, InvalidReplicaAssignment, MetadataError.
        """
        topic = await self._changes.grow(
            name, partition_count, self._partition_count_max, replicas, self._cluster.brokers,
            dry_run=validate_only,
        )  # fmt: skip
        await self._cluster.look_for_topic(name)
        return topic

    async def configure(
        self,
        name: str,
        change: Callable[[TopicConfig], TopicConfig],
        *,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Replace a topic's settings by what `change` makes of them; it may be called repeatedly.

        Raises UnknownTopicOrPartition, InvalidTopicConfig, MetadataError.
        """
        topic = await self._changes.configure(name, change, dry_run=validate_only)
        await self._cluster.look_for_topic(name)
        return topic

    async def assign(self, name: str, changes: Assignments) -> TopicInfo:
        """Say which brokers should lead partitions, the preferred one first, while they live.

        An empty list leaves the choice to the plan again. Raises UnknownTopicOrPartition,
        InvalidReplicaAssignment, MetadataError.
        """
        for replicas in filter(None, changes.values()):
            topic_rules.check_replicas(replicas, self._cluster.brokers)
        topic = await self._changes.assign(name, changes)
        await self._cluster.look_for_topic(name)
        return topic
