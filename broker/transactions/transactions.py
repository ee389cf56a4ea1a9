"""Coordinates transactional ids: the shell around `core/transaction_shard`, and all of a broker.

The internal topic `__transaction_state` is created when it is first needed. Whoever leads one of
its partitions coordinates the transactional ids in it (`TransactionCoordinator`). How a shard is
loaded and served is in `broker/coordinator/runtime.py`; here are the requests, and what else a
decision needs: producer ids, and markers in partitions of all brokers.

`Transactions` finds the coordinator of an id in the cluster, and holds those of this broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.config import BrokerConfig
from broker.coordinator.coordinators import Coordinators, InternalTopic, accepted_before
from broker.coordinator.core.connection_order import ConnectionOrder
from broker.coordinator.core.coordinator_types import Ticket
from broker.coordinator.core.routing import TRANSACTIONS_TOPIC
from broker.coordinator.runtime import CoordinatorRuntime, Phase
from broker.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    InvalidRequest,
    TransactionsDisabled,
    UnknownTopicOrPartition,
)
from broker.leadership.partitions import Partitions
from broker.metrics import Metrics
from broker.partition.partition import Partition
from broker.topics.producer_ids import ProducerIds
from broker.topics.topics import Topics
from broker.transactions.core.marker_queue import Leaders, MarkerQueueConfig
from broker.transactions.core.transaction import (
    ABORTED,
    EXPIRED,
    FENCED,
    STATE_NAMES,
    TIMED_OUT,
    AddPartitions,
    AllocateProducerId,
    EndTransaction,
    InitProducerId,
    MarkerWritten,
    ProducerIdAndEpoch,
    TransactionConfig,
    TransactionEvent,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    WriteMarkers,
)
from broker.transactions.core.transaction_shard import FINAL, TransactionShard
from broker.transactions.core.transaction_table import TransactionSummary, TransactionView
from broker.transactions.marker_sender import (
    ClusterLeaders,
    CoordinatorTerm,
    MarkerLink,
    MarkerSender,
)
from client.errors import QuireError
from client.ids import Clock, ConnectionId, LeaderEpoch, ProducerId
from client.node import background
from client.node.exposition import Samples
from client.node.logs import AT_WILL

_LOG = logging.getLogger(__name__)

_PHASES: Final = 50
"""As many as __transaction_state has partitions by default."""

TOPIC_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    # A transaction is one record with all its partitions, and an entry has to fit a bookie's frame.
    "max.message.bytes": str(4 * 1024 * 1024),
}

_PREFIX: Final = "transaction."

EVENTS: Final = tuple(name.removeprefix(_PREFIX) for name in (TIMED_OUT, FENCED, EXPIRED, ABORTED))

_COUNTED_MS: Final = 500
"""For this long a count is good for all that one scrape asks: there may be a million ids."""


class Surroundings(NamedTuple):
    """What all coordinators of a broker share."""

    clock: Clock
    take_producer_id: Callable[[], Awaitable[ProducerId]]
    """Raises QuireError."""
    leaders: Leaders
    link: MarkerLink
    config: TransactionConfig
    marker_config: MarkerQueueConfig
    copy_bytes_min: int
    on_event: Callable[[TransactionEvent], None]


class TransactionCoordinator(CoordinatorRuntime[TransactionShard]):
    """Serves the transactional ids of one led partition, from `start` to `close`."""

    def __init__(
        self, partition: Partition, shared: Surroundings, accepted_before: ConnectionId
    ) -> None:
        """Prepare; `start` begins to read the log.

        `accepted_before`: the last connection that was accepted before this broker took over
        (FRESH-LEADER).
        """
        order = ConnectionOrder(accepted_before)
        super().__init__(
            partition,
            lambda: TransactionShard(
                shared.config, order, phase=partition.index % _PHASES / _PHASES
            ),
            clock=shared.clock,
            copy_bytes_min=shared.copy_bytes_min,
        )
        self._shared: Final = shared
        self._markers: MarkerSender | None = None
        """Begun with the first decision after each loading."""
        self._allocations: dict[Ticket, asyncio.Task[None]] = {}

    # --- requests -----------------------------------------------------------------------------

    @property
    def epoch(self) -> LeaderEpoch:
        """The coordinator epoch, which answers to other brokers and markers carry."""
        return self.partition.leader_epoch

    async def init_producer_id(self, request: InitProducerId) -> ProducerIdAndEpoch:
        """Begin an incarnation of a transactional id; durable on return. Raises BrokerError."""
        reply = await self._ask(
            lambda token, now: self._shard.requests.init_producer_id(request, token, now)
        )
        assert isinstance(reply, ProducerIdAndEpoch)
        return reply

    async def add_partitions(self, request: AddPartitions) -> None:
        """Add partitions to a transaction; durable on return. Raises BrokerError."""
        await self._ask(lambda token, now: self._shard.requests.add_partitions(request, token, now))

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: tuple[TransactionPartition, ...],
    ) -> tuple[BrokerError | None, ...]:
        """Say for each partition whether the open transaction has it: None, or the error.

        Whoever asks has to compare `epoch` with what its log knows: a coordinator that was taken
        over and has not heard vouches for what its successor has ended. Whom it refuses it would
        end without cause, so refusals are proven first. Raises BrokerError.
        """
        self._check()
        self._check_leading()
        try:
            found = self._shard.requests.verify(transactional_id, producer, partitions)
        except FINAL:
            await self._prove()
            raise
        if any(error is not None for error in found):
            await self._prove()
        return found

    async def _prove(self) -> None:
        """Return when the log has shown that this broker coordinates still. Raises BrokerError."""
        await self._ask(lambda token, _: self._shard.requests.prove(token, None))

    async def end_transaction(self, request: EndTransaction) -> ProducerIdAndEpoch:
        """Commit or abort; the decision is durable on return. Raises BrokerError.

        Returns what the producer goes on with.
        """
        reply = await self._ask(
            lambda token, now: self._shard.requests.end_transaction(request, token, now)
        )
        assert isinstance(reply, ProducerIdAndEpoch)
        return reply

    async def abort(self, transactional_id: str) -> TransactionMetadata:
        """Abort an open transaction and fence its producer, by an operator's word.

        The decision is durable on return, which gives it. Raises BrokerError.
        """
        reply = await self._ask(
            lambda token, now: self._shard.requests.abort(transactional_id, token, now)
        )
        assert isinstance(reply, TransactionMetadata)
        return reply

    # --- what is there ------------------------------------------------------------------------

    def view(self) -> TransactionView:
        """Return what can be asked of the ids, to be read at once. Raises BrokerError."""
        self._check()
        self._check_leading()
        return self._shard.view

    @property
    def last_view(self) -> TransactionView:
        """The same for metrics, which need not be certain that this broker still coordinates."""
        return self._shard.view

    @property
    def marker_count(self) -> int:
        """Markers that are not confirmed."""
        return 0 if self._markers is None else len(self._markers)

    # --- markers ------------------------------------------------------------------------------

    def on_leaders_changed(self) -> None:
        """Partitions may have other leaders now."""
        if self._markers is not None:
            self._markers.on_leaders_changed()

    def _on_unloaded(self) -> None:
        if self._markers is not None:
            self._markers.close()
            self._markers = None
        for task in list(self._allocations.values()):
            task.cancel()
        self._allocations.clear()

    def _sender(self) -> MarkerSender:
        if self._markers is None:
            shared = self._shared
            sessions = shared.link.open(CoordinatorTerm(self.partition.index, self.epoch))
            self._markers = MarkerSender(
                shared.leaders, sessions, shared.marker_config, self._on_markers_written
            )
        return self._markers

    def _on_markers_written(self, written: Sequence[MarkerWritten]) -> None:
        if self.phase is Phase.ACTIVE:
            self._perform(self._shard.on_marker_written(written, self._now()))

    # --- carrying out -------------------------------------------------------------------------

    def _on_effect(self, effect: object) -> None:
        match effect:
            case WriteMarkers():
                self._sender().add(effect)
            case AllocateProducerId(ticket):
                self._allocations[ticket] = background.run(
                    self._allocate(ticket), f"producer id for {self._name}"
                )
            case TransactionEvent():
                _LOG.info(
                    "%s id=%r number=%d producer=%d producer_epoch=%d", effect.name,
                    effect.transactional_id, effect.number, *effect.producer, extra=AT_WILL,
                )  # fmt: skip
                self._shared.on_event(effect)
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    async def _allocate(self, ticket: Ticket) -> None:
        outcome: ProducerId | BrokerError
        try:
            outcome = await self._shared.take_producer_id()
        except QuireError as error:
            outcome = CoordinatorNotAvailable(f"no producer id can be had: {error}")
        del self._allocations[ticket]
        self._perform(self._shard.requests.on_producer_id(ticket, outcome, self._now()))


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
        sees, which `marker_sender.py` relies on. Raises UnknownTopicOrPartition, MetadataError.
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


class _Counted:
    """The transactional ids of a broker, counted once for each scrape."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock
        self._at_ms: int | None = None
        self._found: Sequence[TransactionSummary] = ()

    def now(self) -> Sequence[TransactionSummary]:
        """Return a count of each coordinator."""
        now_ms = self._clock.now_ms()
        if self._at_ms is None or not 0 <= now_ms - self._at_ms < _COUNTED_MS:
            self._found = [one.last_view.summary() for one in self._transactions.coordinators()]
            self._at_ms = now_ms
        return self._found


def provide_transactions(metrics: Metrics, transactions: Transactions, clock: Clock) -> None:
    """Let metrics read the transactions that a broker coordinates."""

    counted = _Counted(transactions, clock)

    def age_s(times_ms: Iterable[int | None]) -> float:
        oldest_ms = min((at_ms for at_ms in times_ms if at_ms is not None), default=None)
        return 0.0 if oldest_ms is None else max(clock.now_ms() - oldest_ms, 0) / 1000

    def states() -> Samples:
        counts = dict.fromkeys(TransactionState, 0)
        for summary in counted.now():
            for state, count in summary.state_counts.items():
                counts[state] += count
        for state in TransactionState:
            if state <= TransactionState.COMPLETE_ABORT:
                yield {"state": STATE_NAMES[state]}, counts[state]

    metrics.provide("quire_transactions", states)
    metrics.provide(
        "quire_transaction_events",
        lambda: [({"kind": name}, count) for name, count in transactions.event_counts.items()],
    )
    metrics.provide_one(
        "quire_transaction_oldest_seconds",
        lambda: age_s(one.oldest_start_ms for one in counted.now()),
    )
    metrics.provide_one(
        "quire_transaction_oldest_decision_seconds",
        lambda: age_s(one.oldest_decision_ms for one in counted.now()),
    )
    metrics.provide_one(
        "quire_transaction_markers",
        lambda: sum(one.marker_count for one in transactions.coordinators()),
    )
