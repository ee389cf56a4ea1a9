"""Coordinates the groups of one partition: the shell around `core/group_shard`.

How a shard is loaded and served is in `broker/coordinator/runtime.py`; here are the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from broker.coordinator.core.connection_order import CommitOrder
from broker.coordinator.core.coordinator_types import (
    Effects,
    LogItem,
    Now,
    Token,
    TransactionalRecord,
)
from broker.coordinator.runtime import CoordinatorRuntime, Phase, as_coordinator_error
from broker.errors import BrokerError, GroupError
from broker.groups.core.consumer_group import Topics
from broker.groups.core.consumer_heartbeat import ConsumerHeartbeat, ConsumerHeartbeatReply
from broker.groups.core.group_offsets import EndedTopic, HeardMarker, TopicPartition
from broker.groups.core.group_shard import GroupShard, Outcomes
from broker.groups.core.group_table import GroupView
from broker.groups.core.group_types import (
    REBALANCING,
    AppendPending,
    Commit,
    Event,
    GroupConfig,
    Heartbeat,
    Join,
    JoinReply,
    Leaving,
    OffsetToCommit,
    ProducerEpoch,
    ShardEffects,
    Sync,
    SyncReply,
)
from broker.partition.partition import Partition
from client.ids import Clock, ConnectionId, LeaderEpoch
from client.wire.kafka.batches.control_batch import Marker

_LOG = logging.getLogger(__name__)


class Coordinator(CoordinatorRuntime[GroupShard]):
    """Serves the groups of one led partition, from `start` to `close`."""

    def __init__(
        self,
        partition: Partition,
        config: GroupConfig,
        *,
        clock: Clock,
        new_member_id: Callable[[str], str],
        topics: Topics,
        copy_bytes_min: int,
        order: CommitOrder,
        on_rebalance: Callable[[], None] = lambda: None,
        on_active: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; `start` begins to read the log. `on_rebalance` is told each time one begins,
        `on_active` each time the log has been read.

        `order`: whose offsets of transactions count, from the takeover on.
        """
        super().__init__(
            partition,
            lambda: GroupShard(config, new_member_id, topics),
            clock=clock,
            copy_bytes_min=copy_bytes_min,
        )
        self._order = order
        self._on_rebalance = on_rebalance
        self._on_active = on_active

    # --- membership ---------------------------------------------------------------------------

    async def join(self, request: Join) -> JoinReply:
        """Carry out a JoinGroup; waits for the rebalance. Raises BrokerError."""
        reply = await self._ask(lambda token, now: self._shard.join(request, token, now))
        assert isinstance(reply, JoinReply)
        return reply

    async def sync(self, request: Sync) -> SyncReply:
        """Carry out a SyncGroup; waits for the assignment. Raises BrokerError."""
        reply = await self._ask(lambda token, now: self._shard.sync(request, token, now))
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(self, request: Heartbeat) -> None:
        """Renew a member's session. Raises BrokerError."""
        self._check()
        try:
            error = self._shard.heartbeat(request, self._now())
        except GroupError as unknown:
            error = unknown
        self._arm()
        self._check_leading()  # in doubt the member was heard, and is not refused: see `_ask`
        if error is not None:
            raise error

    async def heartbeat_consumer(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """Carry out a heartbeat of the consumer protocol; what it changed is durable on return.

        Raises BrokerError. NotCoordinator: the member was heard all the same, if it is one.
        """
        return await self._hear(
            request, lambda token, now: self._shard.heartbeat_consumer(request, token, now)
        )

    async def heartbeat_share(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """Carry out a heartbeat of a share group; what it changed is durable on return.

        Raises BrokerError. NotCoordinator: the member was heard all the same, if it is one.
        """
        return await self._hear(
            request, lambda token, now: self._shard.heartbeat_share(request, token, now)
        )

    async def _hear(
        self, request: ConsumerHeartbeat, start: Callable[[Token, Now], Effects]
    ) -> ConsumerHeartbeatReply:
        if self.phase is Phase.ACTIVE:
            self._shard.hear(request.group_id, request.member_id, self._now())
        reply = await self._ask(start)
        assert isinstance(reply, ConsumerHeartbeatReply)
        return reply

    def leave(self, group_id: str, leaving: Sequence[Leaving]) -> Outcomes:
        """Remove members. Returns an outcome for each. Raises BrokerError."""
        self._check()
        self._check_leading()
        outcomes, effects = self._shard.leave(group_id, leaving, self._now())
        self._perform(effects)
        return outcomes

    # --- offsets ------------------------------------------------------------------------------

    async def commit(
        self, commit: Commit, offsets: Sequence[OffsetToCommit], *, retention_ms: int = -1
    ) -> Outcomes:
        """Commit offsets; durable on return. Returns an outcome for each. Raises BrokerError."""
        return await self._ask_outcomes(
            lambda token, now: self._shard.offsets.commit(
                commit, offsets, token, now, retention_ms=retention_ms
            )
        )

    async def commit_in_transaction(
        self,
        commit: Commit,
        offsets: Sequence[OffsetToCommit],
        producer: ProducerEpoch,
        connection: ConnectionId,
    ) -> Outcomes:
        """Commit offsets that count when the transaction commits; durable on return.

        Returns an outcome for each. Raises BrokerError; OldConnection: nothing is to be answered.
        """
        self._order.admit(producer.producer_id, producer.epoch, connection)
        return await self._ask_outcomes(
            lambda token, now: self._shard.offsets.commit_in_transaction(
                commit, offsets, producer, token, now
            )
        )

    async def write_marker(
        self, marker: Marker, *, is_tv2: bool, leader_epoch: LeaderEpoch | None
    ) -> None:
        """End a producer's transaction in the groups' log: what it committed is published or gone.

        Raises as `PartitionTransactions.write_marker`, and CoordinatorLoading: whoever reads the
        log has to see every marker, and does not look behind where it ended when he began.
        """
        self._check()
        shard = self._shard
        await self.partition.transactions.write_marker(
            marker, is_tv2=is_tv2, leader_epoch=leader_epoch
        )
        # A shard that was loaded meanwhile has read the marker.
        if self._shard is shard and self.phase is Phase.ACTIVE:
            heard = HeardMarker(marker, marker.producer_epoch - is_tv2)
            self._perform(shard.end_transaction(heard))

    async def delete_offsets(self, group_id: str, keys: Sequence[TopicPartition]) -> Outcomes:
        """Remove offsets. Returns an outcome for each. Raises BrokerError."""
        return await self._ask_outcomes(
            lambda token, _: self._shard.offsets.delete(group_id, keys, token)
        )

    def delete_topic(self, ended: EndedTopic) -> None:
        """Remove offsets of a topic that is no more, if this coordinator serves at present."""
        if self.phase is Phase.ACTIVE:
            self._perform(self._shard.offsets.delete_topic(ended))

    # --- groups -------------------------------------------------------------------------------

    def view(self) -> GroupView:
        """Return what can be asked of the groups, to be read at once. Raises BrokerError."""
        self._check()
        self._check_leading()
        return self._shard.view

    @property
    def last_view(self) -> GroupView:
        """The same for metrics, which need not be certain that this broker still coordinates."""
        return self._shard.view

    async def delete_groups(self, group_ids: Sequence[str]) -> Outcomes:
        """Delete groups. Returns an outcome for each. Raises BrokerError."""
        return await self._ask_outcomes(
            lambda token, now: self._shard.delete_groups(group_ids, token, now)
        )

    # --- carrying out -------------------------------------------------------------------------

    def _on_loaded(self) -> None:
        self._on_active()

    async def _ask(self, start: Callable[[Token, Now], Effects]) -> object:
        """Ask the shard. Once another broker may coordinate, what it knows is no reason to refuse
        anybody: members and epochs that the other has given out would be unknown here."""
        self._check()
        self._check_leading()
        return await super()._ask(start)

    async def _ask_outcomes(self, start: Callable[[Token, Now], ShardEffects]) -> Outcomes:
        reply = await self._ask(start)
        assert isinstance(reply, tuple)
        return reply

    def _replay_item(self, shard: GroupShard, item: LogItem) -> None:
        shard.replay(item)

    def _append_pending(self, effect: AppendPending) -> None:
        """Append records of a transaction: replay each batch that is durable, then go on."""
        shard = self._shard

        def on_batch(records: Sequence[TransactionalRecord]) -> None:
            if self._shard is shard:  # or the log has failed, and everybody was answered
                for record in records:
                    shard.replay(record)

        def on_done(error: BrokerError | None) -> None:
            if self._shard is not shard:
                return
            now = self._now()
            if error is None:
                self._perform(shard.on_stored(effect.ticket, now))
            else:
                refusal = as_coordinator_error(error)
                self._perform(shard.on_store_failed(effect.ticket, refusal, now))

        self._log.append_in_transaction(
            effect.records, self._now().ms, effect.producer, on_batch, on_done
        )

    def _on_effect(self, effect: object) -> None:
        if isinstance(effect, AppendPending):
            self._append_pending(effect)
            return
        assert isinstance(effect, Event)
        if effect.name == REBALANCING:
            self._on_rebalance()
        _LOG.info(
            "%s group=%s generation=%d members=%d reason=%s",
            effect.name, effect.group_id, effect.generation, effect.member_count,
            effect.reason,
        )  # fmt: skip
