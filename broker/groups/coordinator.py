"""Coordinates the groups of one partition: the shell around `core/group_shard`.

How a shard is loaded and served is in `broker/coordinator/runtime.py`; here are the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from broker.coordinator.core.coordinator_types import Now, Token
from broker.coordinator.runtime import CoordinatorRuntime, Phase
from broker.groups.core.group_offsets import TopicPartition
from broker.groups.core.group_shard import GroupShard, Outcomes
from broker.groups.core.group_types import (
    REBALANCING,
    Commit,
    Event,
    GroupConfig,
    Heartbeat,
    Join,
    JoinReply,
    Leaving,
    OffsetToCommit,
    ShardEffects,
    Sync,
    SyncReply,
)
from broker.groups.core.group_view import GroupView
from broker.partition.partition import Partition
from client.ids import Clock

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
        copy_bytes_min: int,
        on_rebalance: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; `start` begins to read the log. `on_rebalance` is told each time one begins."""
        super().__init__(
            partition,
            lambda: GroupShard(config, new_member_id),
            clock=clock,
            copy_bytes_min=copy_bytes_min,
        )
        self._on_rebalance = on_rebalance

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
        error = self._shard.heartbeat(request, self._now())
        self._arm()
        self._check_leading()
        if error is not None:
            raise error

    def leave(self, group_id: str, leaving: Sequence[Leaving]) -> Outcomes:
        """Remove members. Returns an outcome for each. Raises BrokerError."""
        self._check()
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

    async def delete_offsets(self, group_id: str, keys: Sequence[TopicPartition]) -> Outcomes:
        """Remove offsets. Returns an outcome for each. Raises BrokerError."""
        return await self._ask_outcomes(
            lambda token, _: self._shard.offsets.delete(group_id, keys, token)
        )

    def delete_topic(self, topic: str, *, before_ms: int | None = None) -> None:
        """Remove offsets of a topic, if this coordinator serves at present.

        All of them; with `before_ms` those that were committed earlier.
        """
        if self.phase is Phase.ACTIVE:
            self._perform(self._shard.offsets.delete_topic(topic, before_ms=before_ms))

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

    async def _ask_outcomes(self, start: Callable[[Token, Now], ShardEffects]) -> Outcomes:
        reply = await self._ask(start)
        assert isinstance(reply, tuple)
        return reply

    def _on_effect(self, effect: object) -> None:
        assert isinstance(effect, Event)
        if effect.name == REBALANCING:
            self._on_rebalance()
        _LOG.info(
            "%s group=%s generation=%d members=%d reason=%s",
            effect.name, effect.group_id, effect.generation, effect.member_count,
            effect.reason,
        )  # fmt: skip
