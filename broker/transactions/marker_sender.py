"""Sends a coordinator's markers until each is confirmed: the shell around `core/marker_queue.py`.

The queue says what goes to which broker, a link carries it there and brings the outcomes back. One
sender serves one loading of a coordinator. If the coordinator loads again it begins a new one,
whose sessions are newer, and every decision that is not complete goes out again.

Sessions (CHANNEL in `broker/coordinator/core/connection_order.py`): each broker hears a coordinator
in one session at a time. When an answer does not come, the session is over: what follows is of a
newer one, and from its first request on the broker drops everything of the old one that arrives
late. Numbers of sessions grow for as long as this process runs, and a leader epoch belongs to one
process; so they grow through every new loading of a coordinator, too.

Leaders. Who leads a partition is taken from the view of the cluster, which may be behind. A leader
epoch that changed since it was read is read again first, and a topic that the view lacks counts as
deleted only when the metadata store says so after a `sync`: a marker that is given up too early
leaves its transaction open for good. That works because no partition is added to a transaction
whose topic the coordinator has not seen (`Transactions.partition`), so the store that this broker
reads cannot be behind its creation.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import TopicInfo
from broker.coordinator.core.connection_order import Session
from broker.errors import PeerUnanswered
from broker.leadership.partitions import Partitions
from broker.link.links import Links
from broker.transactions.core.link_messages import MARKERS, MarkersRequest, MarkerTopic, SentMarker
from broker.transactions.core.marker_queue import (
    Leader,
    Leaders,
    Marker,
    MarkerQueue,
    MarkerQueueConfig,
    Outcome,
    QueueEffects,
    SendMarkers,
    Unled,
)
from broker.transactions.core.transaction import (
    MarkerWritten,
    TransactionPartition,
    TransactionVersion,
    WriteMarkers,
)
from client.errors import MetadataError, QuireError
from client.ids import BrokerId, LeaderEpoch
from client.node import background
from client.node.logs import AT_WILL

LANE: Final = "markers"
"""Markers wait for appends, and hold up each other only."""

_LOG = logging.getLogger(__name__)

_Name = tuple[str, UUID | None]


class CoordinatorTerm(NamedTuple):
    """Who sends markers: the leader of a partition of `__transaction_state`, in one leader epoch.

    The leader epoch is the *coordinator epoch* that markers carry into the log.
    """

    partition: int
    epoch: LeaderEpoch


class MarkerSessions(Protocol):
    """The sessions of one coordinator with all brokers, this one included."""

    async def send(self, broker: BrokerId, markers: Sequence[Marker]) -> Sequence[Outcome]:
        """Have markers written; return an outcome for each, in their order.

        Called again for a broker only after its last call is over. Raises QuireError if no answer
        came: the markers may be written or not, and the session with that broker is over, so that
        nothing that was sent over it takes effect later (CHANNEL).
        """
        ...

    def close(self) -> None:
        """End all sessions: nothing that was sent in them may take effect later."""
        ...


class MarkerLink(Protocol):
    """The way to all brokers."""

    def open(self, coordinator: CoordinatorTerm) -> MarkerSessions:
        """Begin to send for a coordinator; its sessions are newer than all that it had before."""
        ...


class LinkedMarkers:
    """Implements `MarkerLink`."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._numbers = itertools.count(1)

    def open(self, coordinator: CoordinatorTerm) -> MarkerSessions:
        """Begin to send for a coordinator."""
        return _Sessions(self._links, coordinator, self._numbers)


class _Sessions:
    """The sessions of one loading of a coordinator. Implements `MarkerSessions`."""

    def __init__(self, links: Links, coordinator: CoordinatorTerm, numbers: Iterator[int]) -> None:
        self._links = links
        self._coordinator = coordinator
        self._numbers = numbers
        self._sessions: dict[BrokerId, Session] = {}

    async def send(self, broker: BrokerId, markers: Sequence[Marker]) -> Sequence[Outcome]:
        """Have markers written. Raises PeerError: the session is over."""
        session = self._sessions.pop(broker, None)
        if session is None:
            session = Session(self._coordinator.epoch, next(self._numbers))
        request = MarkersRequest(
            self._coordinator.partition, session, [_sent(marker) for marker in markers]
        )
        answer = await self._links.ask(broker, MARKERS, request, LANE)
        if not answer.is_heard:
            raise PeerUnanswered(f"broker {broker} has heard a newer session than {session}")
        if len(answer.outcomes) != len(markers):
            raise PeerUnanswered(f"broker {broker} has answered for {len(answer.outcomes)} markers")
        self._sessions[broker] = session
        return answer.outcomes

    def close(self) -> None:
        """End all sessions: what comes next is of newer ones."""
        self._sessions.clear()


def _sent(marker: Marker) -> SentMarker:
    partition = marker.partition
    return SentMarker(
        MarkerTopic(partition.topic_id, partition.topic),
        partition.partition,
        marker.leader_epoch,
        marker.producer.producer_id,
        marker.producer.epoch,
        marker.is_commit,
        marker.version is TransactionVersion.TV2,
    )


class MarkerSender:
    """The markers of one coordinator, from its loading to `close`."""

    def __init__(
        self,
        leaders: Leaders,
        sessions: MarkerSessions,
        config: MarkerQueueConfig,
        on_written: Callable[[Sequence[MarkerWritten]], None],
    ) -> None:
        self._queue: Final = MarkerQueue(leaders, config)
        self._sessions = sessions
        self._on_written = on_written
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """How many markers are not confirmed."""
        return len(self._queue)

    def add(self, decided: WriteMarkers) -> None:
        """Take the markers of a decision that is durable."""
        self._perform(self._queue.add(decided, self._loop.time()))

    def on_leaders_changed(self) -> None:
        """Address what is not on its way anew."""
        if not self._is_closed and len(self._queue):
            self._perform(self._queue.on_leaders_changed(self._loop.time()))

    def close(self) -> None:
        """Stop: what was not confirmed is the next coordinator's, or the next loading's."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._sending.values()):
            task.cancel()
        self._sessions.close()

    def _perform(self, effects: QueueEffects) -> None:
        for effect in effects:
            if isinstance(effect, SendMarkers):
                self._sending[effect.request_id] = background.run(
                    self._send(effect), f"markers to {effect.broker}"
                )
            else:
                self._on_written(effect.written)
        self._arm()

    async def _send(self, request: SendMarkers) -> None:
        try:
            outcomes = await self._sessions.send(request.broker, request.markers)
        except QuireError as error:
            _LOG.info(
                "transaction.markers_not_answered broker=%d markers=%d error=%r",
                request.broker, len(request.markers), error, extra=AT_WILL,
            )  # fmt: skip
            self._sending.pop(request.request_id)
            self._perform(self._queue.on_no_answer(request.request_id, self._loop.time()))
        else:
            self._sending.pop(request.request_id)
            now_s = self._loop.time()
            self._perform(self._queue.on_answer(request.request_id, outcomes, now_s))

    def _arm(self) -> None:
        at_s = None if self._is_closed else self._queue.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._perform(self._queue.on_deadline(self._loop.time()))


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
