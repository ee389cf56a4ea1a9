"""Internal topics whose partitions are coordinators' logs, and the coordinators of a broker.

The topic is made when it is first needed. Whoever leads the partition that a key belongs to
coordinates the key (`InternalTopic`); a broker has one coordinator for each partition that it leads
(`Coordinators`).

A client asks its coordinator as soon as it knows which broker that is, which may be a moment too
early: the broker takes the partition over still, or reads its log. Refused, librdkafka joins again
only after three seconds. So the requests that clients begin with wait (`soon`), for a bounded time
in all: `partition_hold_max_ms` from when the takeover began, and as long again from when reading
the log did. Nobody relies on it: who waited in vain is told that the coordinator is loading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.coordinator.core.routing import coordinator_partition
from broker.coordinator.runtime import CoordinatorRuntime
from broker.errors import (
    BrokerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    TopicExists,
)
from broker.leadership.awaited_partitions import AwaitedPartitions, Key
from broker.partition.partition import Partition
from broker.topics.topics import Topics
from client.errors import LogCorrupt, MetadataError
from client.ids import BrokerId, ConnectionId, LeaderEpoch
from client.node import background

_LOG = logging.getLogger(__name__)

PREPARE_AGAIN_S: Final = 2.0
"""Between two attempts to create the topic before anybody asks for it."""

C = TypeVar("C", bound=CoordinatorRuntime[Any])

_FIRST_EPOCH: Final = LeaderEpoch(0)


def accepted_before(
    partition: Partition, last_connection: Callable[[], ConnectionId]
) -> ConnectionId:
    """Return the last connection that is too old for a new coordinator (FRESH-LEADER).

    Before the first leader nobody can have served a newer connection: to that one all are fresh.
    """
    is_first = partition.leader_epoch == _FIRST_EPOCH
    return ConnectionId(-1) if is_first else last_connection()


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


class Coordinators(Generic[C]):
    """Coordinators by partition. `on_opened`/`on_closed` are told of led partitions."""

    def __init__(
        self,
        topic: InternalTopic,
        broker_id: BrokerId,
        make: Callable[[Partition], C],
        awaited: AwaitedPartitions,
    ) -> None:
        """`make` returns the coordinator of a partition, not started.

        `awaited`: the partitions that this broker is about to lead.
        """
        self._topic = topic
        self._awaited = awaited
        self._broker_id = broker_id
        self._make = make
        self._held: dict[int, C] = {}

    def close(self) -> None:
        """Stop all."""
        for coordinator in self._held.values():
            coordinator.close()
        self._held.clear()

    def on_opened(self, partition: Partition) -> None:
        """This broker leads a partition now; ignored unless it is one of the topic."""
        if partition.topic.name != self._topic.name:
            return
        coordinator = self._held[partition.index] = self._make(partition)
        coordinator.start()

    def on_closed(self, partition: Partition) -> None:
        """This broker leads a partition no longer."""
        coordinator = self._held.get(partition.index)
        if coordinator is not None and coordinator.partition is partition:
            del self._held[partition.index]
            coordinator.close()

    def all(self) -> list[C]:
        """Return all of them, by partition."""
        return [self._held[index] for index in sorted(self._held)]

    def of(self, key: str) -> C:
        """Return the coordinator of a key, if it is this broker.

        Raises NotCoordinator, CoordinatorLoading (it is about to be).
        """
        index = self._topic.index_of(key)
        if index is None:
            raise NotCoordinator(f"this cluster has no {self._topic.name} yet")
        coordinator = self._held.get(index)
        if coordinator is not None:
            return coordinator
        leader = self._topic.leader(index)
        if leader is not None and leader.id == self._broker_id:
            raise CoordinatorLoading(f"{self._topic.name}-{index} is being opened")
        raise NotCoordinator(f"another broker coordinates {key!r}")

    async def soon(self, key: str) -> C:
        """Return the coordinator of a key, loaded, if this broker is or in a moment will be that.

        Raises as `of`, when the time is over.
        """
        place = self._topic.key_of(key)
        if place is not None and place[1] not in self._held and self._awaited.left_s(place):
            await self._awaited.settled(place)
        coordinator = self.of(key)
        await coordinator.loaded(self._awaited.hold_s)
        # Another broker may lead the partition by now, or this one again.
        return self.of(key)
