"""Writes markers into partitions that this broker leads, for coordinators of all brokers.

    CHANNEL         what comes of an older session of a coordinator than the newest that was heard
                    is dropped, and the answer says so
    MARKER-ADDRESS  a marker is for one leader epoch; every other leader refuses it

Nothing is awaited between a look at the session and the markers' places in their logs, but for
their turns in the loop, which keep their order. Some markers are begun in each turn, and all
coordinators take turns, because thousands of transactions may run out of time at one moment; after
a turn the session is looked at again. An answer waits for its markers for a moment only,
or one partition that has lost its bookies would hold up all others: what is not confirmed then
counts as failed and is sent again, and meets the same write still under way.

The partitions of one topic may be somebody's log: whoever serves it writes its markers (`routes`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from broker.coordinator.core.connection_order import ChannelOrder
from broker.coordinator.core.routing import TRANSACTIONS_TOPIC
from broker.errors import (
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from broker.leadership.partitions import Partitions
from broker.link.link_services import LinkServices
from broker.partition.partition import Partition
from broker.transactions.core.link_messages import (
    MARKERS,
    MarkersAnswer,
    MarkersRequest,
    MarkerTopic,
    SentMarker,
)
from broker.transactions.core.marker_queue import Outcome
from client.ids import BrokerId, LeaderEpoch
from client.node import background
from client.node.logs import AT_WILL
from client.node.turns import Turns
from client.wire.kafka.batches.control_batch import Marker

_LOG = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 1.0
MARKERS_PER_TURN: Final = 32
"""Each costs around 0.1 ms: a task, a batch, its place in a log."""


class WriteMarker(Protocol):
    """Writes a marker into a partition."""

    async def __call__(
        self,
        partition: Partition,
        marker: Marker,
        *,
        is_tv2: bool,
        leader_epoch: LeaderEpoch | None,
    ) -> None:
        """Return when it is confirmed. Raises as `PartitionTransactions.write_marker`."""
        ...


class ClusterTopics(Protocol):
    """The part of the cluster's view that markers' topics are looked up in."""

    topic_by_id: Mapping[UUID, TopicInfo]


class _Write(NamedTuple):
    """What makes two markers one."""

    topic: MarkerTopic
    partition: int
    marker: Marker
    is_tv2: bool
    leader_epoch: LeaderEpoch | None
    """Of the leader that it is for; None: of whoever leads, for an operator."""


async def write_marker(
    partition: Partition, marker: Marker, *, is_tv2: bool, leader_epoch: LeaderEpoch | None
) -> None:
    """Write a marker into a partition that is nobody's log."""
    await partition.transactions.write_marker(marker, is_tv2=is_tv2, leader_epoch=leader_epoch)


class MarkerWriter:
    """Markers for the partitions of one broker."""

    def __init__(
        self,
        cluster: ClusterTopics,
        partitions: Partitions,
        routes: Mapping[str, WriteMarker],
        *,
        answer_s_max: float = ANSWER_S_MAX,
        markers_per_turn: int = MARKERS_PER_TURN,
    ) -> None:
        """`routes`: who writes into the partitions of a topic, where it is not `write_marker`."""
        self._cluster = cluster
        self._partitions = partitions
        self._routes = routes
        self._answer_s_max = answer_s_max
        self._channels = ChannelOrder()
        self._per_turn = markers_per_turn
        self._turns = Turns()
        self._writes: dict[_Write, asyncio.Task[None]] = {}
        """Under way."""

    def serve(self, services: LinkServices) -> None:
        """Take markers from other brokers."""
        services.serve(MARKERS, self.receive)

    async def receive(self, sender: BrokerId, request: MarkersRequest) -> MarkersAnswer:
        """Write a coordinator's markers; return what became of each within a moment."""
        coordinator_epoch = request.session.leader_epoch
        tasks: list[asyncio.Task[None]] = []
        while self._channels.hear(request.partition, request.session):
            some = request.markers[len(tasks) : len(tasks) + self._per_turn]
            tasks += [self._begin(marker, coordinator_epoch) for marker in some]
            if len(tasks) == len(request.markers):
                break
            await self._turns.next()
        else:
            _LOG.warning(
                "marker.dropped broker=%d coordinator=%d epoch=%d session=%d markers=%d",
                sender, request.partition, *request.session, len(request.markers) - len(tasks),
                extra=AT_WILL,
            )  # fmt: skip
            return MarkersAnswer(False, ())
        if tasks:
            await asyncio.wait(tasks, timeout=self._answer_s_max)
        return MarkersAnswer(True, [_outcome(task) for task in tasks])

    async def write(self, topic: str, index: int, marker: Marker) -> None:
        """Write an operator's marker, by the rules of the classic protocol, whoever leads.

        Raises as `PartitionTransactions.write_marker`, and UnknownTopicOrPartition.
        """
        write = _Write(MarkerTopic(None, topic), index, marker, False, None)
        await asyncio.shield(self._task(write))

    def _begin(self, sent: SentMarker, coordinator_epoch: int) -> asyncio.Task[None]:
        marker = Marker(sent.producer_id, sent.producer_epoch, sent.is_commit, coordinator_epoch)
        return self._task(
            _Write(sent.topic, sent.partition, marker, sent.is_tv2, sent.leader_epoch)
        )

    def _task(self, write: _Write) -> asyncio.Task[None]:
        task = self._writes.get(write)
        if task is None:
            task = background.begin(self._run(write), "marker")
            self._writes[write] = task
            task.add_done_callback(lambda done: self._on_done(write, done))
        return task

    def _on_done(self, write: _Write, task: asyncio.Task[None]) -> None:
        del self._writes[write]

    async def _run(self, write: _Write) -> None:
        partition = self._find(write.topic, write.partition)
        route = self._routes.get(partition.topic.name, write_marker)
        await route(partition, write.marker, is_tv2=write.is_tv2, leader_epoch=write.leader_epoch)

    def _find(self, topic: MarkerTopic, index: int) -> Partition:
        """Return the partition that a marker is for. Raises LeadershipError."""
        name = topic.name
        if topic.topic_id is not None:
            info = self._cluster.topic_by_id.get(topic.topic_id)
            if info is None:
                raise UnknownTopicOrPartition(f"no topic {topic.topic_id} ({topic.name})")
            name = info.name
        if name == TRANSACTIONS_TOPIC:
            raise UnknownTopicOrPartition(f"{name} is part of no transaction")
        partition = self._partitions.leader(name, index)
        if topic.topic_id not in (None, partition.topic.topic_id):
            raise UnknownTopicOrPartition(f"{name}-{index} is of another topic of that name")
        return partition


def _outcome(task: asyncio.Task[None]) -> Outcome:
    if not task.done() or task.cancelled():
        return Outcome.FAILED
    match task.exception():
        case None:
            return Outcome.WRITTEN
        case InvalidProducerEpoch():
            return Outcome.SUPERSEDED
        case TransactionCoordinatorFenced():
            return Outcome.COORDINATOR_FENCED
        case _:
            return Outcome.FAILED
