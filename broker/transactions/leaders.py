"""Says who leads the partitions that need markers, out of the view of the cluster.

The view may be behind. A leader epoch that changed since it was read is read again first, and a
topic that the view lacks counts as deleted only when the metadata store says so after a `sync`:
a marker that is given up too early leaves its transaction open for good. That works because no
partition is added to a transaction whose topic the coordinator has not seen
(`Transactions.partition`), so the store that this broker reads cannot be behind its creation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import TopicInfo
from broker.leadership.partitions import Partitions
from broker.transactions.core.marker_queue import Leader, Unled
from broker.transactions.core.transaction_types import TransactionPartition
from client.errors import MetadataError
from client.ids import BrokerId
from client.node import background

_LOG = logging.getLogger(__name__)

_Name = tuple[str, UUID | None]


class ClusterLeaders:
    """Implements `Leaders` of `core/marker_queue.py`."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: Partitions,
        broker_id: BrokerId,
        on_changed: Callable[[], None],
    ) -> None:
        """`on_changed` is told when something that was UNKNOWN may be known now."""
        self._cluster = cluster
        self._partitions = partitions
        self._broker_id = broker_id
        self._on_changed = on_changed
        self._stale: dict[UUID, TopicInfo] = {}
        """Topics whose leader epochs are to be read."""
        self._missing: dict[_Name, None] = {}
        """Topics to be looked for in the store."""
        self._deleted: dict[_Name, None] = {}
        self._looking: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()

    def leader(self, partition: TransactionPartition) -> Leader | Unled:
        """Return who leads a partition; what is not known is looked for."""
        topic = self._topic(partition)
        if topic is None:
            name = partition.topic, partition.topic_id
            if name in self._deleted:
                return Unled.DELETED
            self._missing[name] = None
            self._look()
            return Unled.UNKNOWN
        led = self._partitions.find(topic.name, partition.partition)
        if led is not None and led.topic.topic_id == topic.topic_id:
            return Leader(self._broker_id, led.leader_epoch)
        broker = self._cluster.preferred_leader(topic, partition.partition)
        epoch = self._cluster.leader_epochs.current(topic, partition.partition)
        if broker is None or epoch is None:
            self._stale[topic.topic_id] = topic
            self._look()
            return Unled.UNKNOWN
        return Leader(broker, epoch)

    def _topic(self, partition: TransactionPartition) -> TopicInfo | None:
        if partition.topic_id is None:
            return self._cluster.topics.get(partition.topic)
        return self._cluster.topic_by_id.get(partition.topic_id)

    def _look(self) -> None:
        if self._looking is None:
            self._looking = background.run(self._look_for_all(), "marker-leaders")
            self._looking.add_done_callback(self._on_looked)

    def _on_looked(self, _task: asyncio.Task[None]) -> None:
        self._looking = None

    async def _look_for_all(self) -> None:
        stale, self._stale = list(self._stale.values()), {}
        missing, self._missing = list(self._missing), {}
        await self._cluster.leader_epochs.load(stale)
        for name, topic_id in missing:
            try:
                if await self._cluster.is_deleted(name, topic_id):
                    self._deleted[name, topic_id] = None
            except MetadataError as error:
                _LOG.warning("transaction.topic_unknown topic=%s error=%r", name, error)
                break
        # What is still unknown is asked for again by its marker, after the marker's pause.
        self._on_changed()
        self._deleted.clear()
