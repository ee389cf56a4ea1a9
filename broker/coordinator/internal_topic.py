"""An internal topic whose partitions are coordinators' logs: made when first needed, found by key.

Whoever leads the partition that a key belongs to coordinates it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.coordinator.core.routing import coordinator_partition
from broker.errors import BrokerError, CoordinatorNotAvailable, TopicExists
from broker.leadership.awaited_partitions import Key
from broker.topics.topics import Topics
from client.errors import LogCorrupt, MetadataError
from client.node import background

_LOG = logging.getLogger(__name__)

PREPARE_AGAIN_S: Final = 2.0
"""Between two attempts to create the topic before anybody asks for it."""


class InternalTopic:
    """One internal topic of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Topics,
        name: str,
        partition_count: int,
        settings: Mapping[str, str],
    ) -> None:
        """`partition_count` and `settings` count when it is made, and never after."""
        self.name: Final = name
        self._cluster = cluster
        self._topics = topics
        self._partition_count = partition_count
        self._settings = settings
        self._creating: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None

    @property
    def info(self) -> TopicInfo | None:
        """The topic as this broker sees it, None if it is not there."""
        return self._cluster.topics.get(self.name)

    def prepare(self) -> None:
        """Create the topic in the background, if it is not there: the first client need not wait.

        Not before there are bookies for the default number of copies: that is fixed when the topic
        is created, and a cluster that starts may have one bookie at first.
        """
        self._preparing = background.run(self._prepare(), f"prepare {self.name}")

    async def _prepare(self) -> None:
        while self.info is None:
            try:
                if await self._topics.has_default_bookies():
                    await self._make()
                    return
                _LOG.info("coordinator.topic_put_off topic=%s", self.name)
            except (CoordinatorNotAvailable, MetadataError) as error:
                _LOG.info("coordinator.topic_put_off topic=%s error=%s", self.name, error)
            await asyncio.sleep(PREPARE_AGAIN_S)

    def close(self) -> None:
        """End a creation under way."""
        if self._preparing is not None:
            self._preparing.cancel()
        if self._creating is not None:
            self._creating.cancel()

    def index_of(self, key: str) -> int | None:
        """Return the index of the partition that keeps a key; None: there is no topic yet."""
        info = self.info
        return None if info is None else coordinator_partition(key, info.partition_count)

    def key_of(self, key: str) -> Key | None:
        """Return topic id and index of the partition that keeps a key; None: no topic yet."""
        info = self.info
        if info is None:
            return None
        return info.topic_id, coordinator_partition(key, info.partition_count)

    def leader(self, index: int) -> BrokerInfo | None:
        """Return the broker that should coordinate what a partition keeps."""
        info = self.info
        owner = None if info is None else self._cluster.preferred_leader(info, index)
        return None if owner is None else self._cluster.brokers.get(owner)

    async def place(self, key: str) -> tuple[TopicInfo, int]:
        """Return the topic and the index of the partition that keeps a key; create the topic if
        there is none. Raises CoordinatorNotAvailable.
        """
        topic = self.info or await self._make()
        return topic, coordinator_partition(key, topic.partition_count)

    async def find(self, key: str) -> BrokerInfo:
        """Return the broker that coordinates a key; create the topic if there is none.

        Raises CoordinatorNotAvailable.
        """
        _, index = await self.place(key)
        broker = self.leader(index)
        if broker is None:
            raise CoordinatorNotAvailable(f"no broker is available to coordinate {key!r}")
        return broker

    async def _make(self) -> TopicInfo:
        """Create the topic once, however many ask for it meanwhile."""
        if self._creating is None:
            self._creating = background.begin(self._create(), f"create {self.name}")
        creating = self._creating
        try:
            await asyncio.shield(creating)
        except (BrokerError, LogCorrupt, MetadataError) as error:
            _LOG.warning("coordinator.topic_not_created topic=%s error=%r", self.name, error)
            raise CoordinatorNotAvailable(f"cannot create {self.name}: {error}") from error
        finally:
            if creating.done() and self._creating is creating:
                self._creating = None
        topic = self.info
        if topic is None:
            raise CoordinatorNotAvailable(
                f"{self.name} was created, but this broker does not see it yet"
            )
        return topic

    async def _create(self) -> None:
        try:
            await self._topics.create(
                self.name, self._partition_count, config=self._settings, internal=True
            )
        except TopicExists:
            await self._cluster.look_for_topic(self.name)
