"""Finds the coordinator of a transactional id, and holds the coordinators of this broker.

The internal topic `__transaction_state` is created when it is first needed. Whoever leads one of
its partitions coordinates the transactional ids in it (`broker/transactions/coordinator.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.config import BrokerConfig
from broker.coordinator.coordinators import Coordinators, accepted_before
from broker.coordinator.core.routing import TRANSACTIONS_TOPIC
from broker.coordinator.internal_topic import InternalTopic
from broker.errors import InvalidRequest, TransactionsDisabled, UnknownTopicOrPartition
from broker.leadership.partitions import Partitions
from broker.partition.partition import Partition
from broker.topics.producer_ids import ProducerIds
from broker.topics.topics import Topics
from broker.transactions.coordinator import Surroundings, TransactionCoordinator
from broker.transactions.core.transaction_types import (
    ABORTED,
    EXPIRED,
    FENCED,
    TIMED_OUT,
    TransactionEvent,
    TransactionPartition,
)
from broker.transactions.leaders import ClusterLeaders
from broker.transactions.marker_link import MarkerLink
from client.ids import Clock, ConnectionId

TOPIC_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    # A transaction is one record with all its partitions, and an entry has to fit a bookie's frame.
    "max.message.bytes": str(4 * 1024 * 1024),
}


_PREFIX: Final = "transaction."
EVENTS: Final = tuple(name.removeprefix(_PREFIX) for name in (TIMED_OUT, FENCED, EXPIRED, ABORTED))


class Transactions:
    """Finds and holds coordinators. `on_opened`/`on_closed` are told of led partitions."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Topics,
        partitions: Partitions,
        producer_ids: ProducerIds,
        config: BrokerConfig,
        link: MarkerLink,
        clock: Clock,
    ) -> None:
        """`link` takes markers to the brokers that lead the partitions."""
        self.event_counts = dict.fromkeys(EVENTS, 0)
        """What coordinators decided by themselves, by the name of the event."""
        self.last_connection: Callable[[], ConnectionId] = lambda: ConnectionId(-1)
        """Asked at each takeover for the number of the newest connection that was accepted."""
        self._cluster = cluster
        settings = config.transactions
        self._is_enabled = settings.enabled
        self._is_prepared = config.internal_topics_at_start
        self._topic = InternalTopic(
            cluster,
            topics,
            TRANSACTIONS_TOPIC,
            settings.topic_partitions,
            TOPIC_SETTINGS,
        )
        self._leaders = ClusterLeaders(
            cluster, partitions, config.node_id, self._on_leaders_changed
        )
        self._shared = Surroundings(
            clock,
            producer_ids.take,
            self._leaders,
            link,
            settings.limits(),
            settings.markers(),
            settings.log_copy_bytes,
            self._count,
        )
        self._coordinators = Coordinators(
            self._topic, config.node_id, self._make, partitions.awaited
        )

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the cluster from now on."""
        self._cluster.add_listener(self._on_leaders_changed)
        if self._is_enabled and self._is_prepared:
            self._topic.prepare()

    def close(self) -> None:
        """Stop serving."""
        self._topic.close()
        self._leaders.close()
        self._coordinators.close()

    def on_opened(self, partition: Partition) -> None:
        """This broker leads a partition now; ignored unless it is one of the internal topic."""
        self._coordinators.on_opened(partition)

    def on_closed(self, partition: Partition) -> None:
        """This broker leads a partition no longer."""
        self._coordinators.on_closed(partition)

    # --- routing ------------------------------------------------------------------------------

    async def find(self, transactional_id: str) -> BrokerInfo:
        """Return the broker that coordinates an id; create the internal topic if there is none.

        Raises CoordinatorNotAvailable, TransactionsDisabled.
        """
        self._check_enabled()
        return await self._topic.find(transactional_id)

    async def place(self, transactional_id: str) -> tuple[TopicInfo, int]:
        """Return the topic and the index of the partition that keeps an id; create it if there is
        none. Raises CoordinatorNotAvailable, TransactionsDisabled.
        """
        self._check_enabled()
        return await self._topic.place(transactional_id)

    def coordinator(self, transactional_id: str) -> TransactionCoordinator:
        """Return the coordinator of an id, if it is this broker.

        Raises NotCoordinator, CoordinatorLoading (it is about to be), TransactionsDisabled,
        InvalidRequest.
        """
        self._check_asked(transactional_id)
        return self._coordinators.of(transactional_id)

    async def coordinator_soon(self, transactional_id: str) -> TransactionCoordinator:
        """Return the coordinator of an id, loaded, if this broker is or soon will be that.

        Raises as `coordinator`, when it took too long.
        """
        self._check_asked(transactional_id)
        return await self._coordinators.soon(transactional_id)

    def leader(self, transactional_id: str) -> BrokerInfo | None:
        """Return the broker that should coordinate an id; None: there is no topic yet, or none."""
        index = self._topic.index_of(transactional_id)
        return None if index is None else self._topic.leader(index)

    def coordinators(self) -> list[TransactionCoordinator]:
        """Return all coordinators of this broker, by partition."""
        return self._coordinators.all()

    async def partition(self, topic: str, index: int) -> TransactionPartition:
        """Return a partition that can be added to a transaction: one of a topic that this broker
        sees, which `leaders.py` relies on. Raises UnknownTopicOrPartition, MetadataError.
        """
        found = self._cluster.topics.get(topic)
        if found is None or index >= found.partition_count:
            found = await self._cluster.look_for_topic(topic)
        if found is None or not 0 <= index < found.partition_count:
            raise UnknownTopicOrPartition(f"no partition {index} of a topic {topic!r}")
        return TransactionPartition(topic, found.topic_id, index)

    async def check_seen(self, partitions: Sequence[TransactionPartition]) -> None:
        """Make sure of the same for partitions that another broker names.

        Raises UnknownTopicOrPartition, MetadataError.
        """
        for topic, topic_id in dict.fromkeys((one.topic, one.topic_id) for one in partitions):
            if topic_id is None or topic_id not in self._cluster.topic_by_id:
                found = await self._cluster.look_for_topic(topic)
                if found is None or found.topic_id != topic_id:
                    raise UnknownTopicOrPartition(f"this broker sees no {topic!r} with that id")

    # --- the rest -----------------------------------------------------------------------------

    def _check_asked(self, transactional_id: str) -> None:
        self._check_enabled()
        if not transactional_id:
            raise InvalidRequest("a transactional id must not be empty")

    def _check_enabled(self) -> None:
        if not self._is_enabled:
            raise TransactionsDisabled("transactions.enabled is off")

    def _make(self, partition: Partition) -> TransactionCoordinator:
        fresh_after = accepted_before(partition, self.last_connection)
        return TransactionCoordinator(partition, self._shared, fresh_after)

    def _on_leaders_changed(self) -> None:
        for coordinator in self.coordinators():
            coordinator.on_leaders_changed()

    def _count(self, event: TransactionEvent) -> None:
        self.event_counts[event.name.removeprefix(_PREFIX)] += 1
