"""Coordinates the transactional ids of one partition: the shell around `core/transaction_shard`.

How a shard is loaded and served is in `broker/coordinator/runtime.py`; here are the requests, and
what else a decision needs: producer ids, and markers in partitions of all brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from broker.coordinator.core.coordinator_types import Ticket
from broker.coordinator.runtime import CoordinatorRuntime, Phase
from broker.errors import BrokerError, CoordinatorNotAvailable
from broker.partition.partition import Partition
from broker.transactions.core.connection_order import ConnectionOrder
from broker.transactions.core.marker_queue import Leaders, MarkerQueueConfig
from broker.transactions.core.transaction_requests import FINAL
from broker.transactions.core.transaction_shard import TransactionShard
from broker.transactions.core.transaction_types import (
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
    WriteMarkers,
)
from broker.transactions.core.transaction_view import TransactionView
from broker.transactions.marker_link import CoordinatorTerm, MarkerLink
from broker.transactions.marker_sender import MarkerSender
from client.errors import QuireError
from client.ids import Clock, ConnectionId, LeaderEpoch, ProducerId
from client.node import background
from client.node.logs import AT_WILL

_LOG = logging.getLogger(__name__)

_PHASES: Final = 50
"""As many as __transaction_state has partitions by default."""


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
