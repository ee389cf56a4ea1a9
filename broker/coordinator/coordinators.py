"""Holds a broker's coordinators of one kind: one for each partition that it leads of a topic.

A client asks its coordinator as soon as it knows which broker that is, which may be a moment too
early: the broker takes the partition over still, or reads its log. Refused, librdkafka joins again
only after three seconds. So the requests that clients begin with wait (`soon`), for a bounded time
in all: `partition_hold_max_ms` from when the takeover began, and as long again from when reading
the log did. Nobody relies on it: who waited in vain is told that the coordinator is loading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from broker.coordinator.internal_topic import InternalTopic
from broker.coordinator.runtime import CoordinatorRuntime
from broker.errors import CoordinatorLoading, NotCoordinator
from broker.leadership.awaited_partitions import AwaitedPartitions
from broker.partition.partition import Partition
from client.ids import BrokerId, ConnectionId, LeaderEpoch

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
