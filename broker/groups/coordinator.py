"""Coordinates the groups of one partition: the shell around `core/group_shard`.

    LOADING ──log read to its end──▶ ACTIVE ──log failed──▶ LOADING
       │                               │
       └────── leadership lost ────────┴──────▶ CLOSED        (or FAILED: the log is damaged)

A handler's request becomes a call of the shard, whose effects are carried out in order: replies
resolve the waiting call, appends go to the log, and once an append is durable its records are
replayed and the shard continues. Nothing is answered from state that is not durable, so another
coordinator that reads the same log can take over at any point. One timer serves all deadlines.

Requests that arrive while the log is being read get CoordinatorLoading. A broker that is not sure
of its metadata session does not answer questions about state, which may be another broker's by now;
it still keeps its members' sessions alive.

`broker/groups/group_copy.py` keeps the log short.

Sources: Kafka's CoordinatorRuntime; KIP-848 on why coordinators replay.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.coordinator.core.coordinator_types import Append, Now, Reply, Token
from broker.errors import (
    BrokerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupError,
    LeadershipError,
    LogError,
    NotCoordinator,
)
from broker.groups.core.group_offsets import TopicPartition
from broker.groups.core.group_shard import GroupShard, Outcomes
from broker.groups.core.group_types import (
    REBALANCING,
    Commit,
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
from broker.groups.group_copy import GroupCopy
from broker.groups.group_log import GroupLog
from broker.partition.partition import Partition
from client.errors import QuireError
from client.ids import Clock
from client.node import background

_LOG = logging.getLogger(__name__)

STALL_S: Final = 2.0
"""A timer that fires so late means that this whole process stood still, not its members."""

STALL_GRACE_S: Final = 1.0
"""How long deadlines are put off then: what the members sent meanwhile has to be read first."""

_RETRY_S_MIN: Final = 0.1
_RETRY_S_MAX: Final = 5.0


class Phase(enum.Enum):
    """Where a coordinator stands."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"
    FAILED = "failed"


class Coordinator:
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
        self._on_rebalance = on_rebalance
        self.partition = partition
        self.phase = Phase.LOADING
        self._config = config
        self._clock = clock
        self._new_member_id = new_member_id
        self._shard = GroupShard(config, new_member_id)
        self._log = GroupLog(partition, self._on_log_failed)
        self._calls: dict[Token, asyncio.Future[object]] = {}
        self._last_token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._not_before_s = float("-inf")  # no deadline is acted on earlier, see STALL_S
        self._loading: asyncio.Task[None] | None = None
        self._copy = GroupCopy(self._name, clock, bytes_min=copy_bytes_min)

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read the log."""
        self._loading = background.run(self._load(), f"load {self._name}")

    def close(self) -> None:
        """Stop serving: requests that wait are told to look for another coordinator."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        if self._loading is not None:
            self._loading.cancel()
        self._copy.cancel()
        self._give_up(NotCoordinator(f"this broker no longer coordinates {self._name}"))
        _LOG.info("coordinator.closed shard=%s", self._name)

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

    # --- asking the shard ---------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self.partition.topic.name}-{self.partition.index}"

    def _now(self) -> Now:
        return Now(asyncio.get_running_loop().time(), self._clock.now_ms())

    def _check(self) -> None:
        if self.phase is Phase.LOADING:
            raise CoordinatorLoading(self._name)
        if self.phase is Phase.FAILED:
            raise CoordinatorNotAvailable(f"the log of {self._name} cannot be read")
        if self.phase is Phase.CLOSED:
            raise NotCoordinator(self._name)

    def _check_leading(self) -> None:
        try:
            self.partition.check_leading()
        except LeadershipError as error:
            raise NotCoordinator(str(error)) from error

    async def _ask_outcomes(self, start: Callable[[Token, Now], ShardEffects]) -> Outcomes:
        reply = await self._ask(start)
        assert isinstance(reply, tuple)
        return reply

    async def _ask(self, start: Callable[[Token, Now], ShardEffects]) -> object:
        self._check()
        self._last_token += 1
        token = Token(self._last_token)
        effects = start(token, self._now())
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._calls[token] = future
        self._perform(effects)
        try:
            return await future
        finally:
            self._calls.pop(token, None)

    # --- carrying out -------------------------------------------------------------------------

    def _perform(self, effects: ShardEffects) -> None:
        shard = self._shard
        for effect in effects:
            if isinstance(effect, Reply):
                self._answer(effect)
            elif not isinstance(effect, Append):
                if effect.name == REBALANCING:
                    self._on_rebalance()
                _LOG.info(
                    "%s group=%s generation=%d members=%d reason=%s",
                    effect.name, effect.group_id, effect.generation, effect.member_count,
                    effect.reason,
                )  # fmt: skip
            elif shard is self._shard:  # or the log failed on the way, and the shard went with it
                self._append(effect)
        self._arm()

    def _answer(self, reply: Reply) -> None:
        future = self._calls.get(reply.token)
        if future is None or future.done():
            return  # whoever asked is gone
        if isinstance(reply.result, BrokerError):
            future.set_exception(reply.result)
        else:
            future.set_result(reply.result)

    def _append(self, effect: Append) -> None:
        shard = self._shard
        now = self._now()
        try:
            self._log.append(effect.records, now.ms, lambda: self._on_durable(effect))
        except BrokerError as error:
            if shard is self._shard:
                refusal = _as_group_error(error)
                self._perform(shard.on_store_failed(effect.ticket, refusal, now))
            return
        self._copy.start_if_due(self._log, self._shard.view)

    def _on_durable(self, effect: Append) -> None:
        for record in effect.records:
            self._shard.replay(record)
        self._perform(self._shard.on_stored(effect.ticket, self._now()))

    def _arm(self) -> None:
        at_s = self._shard.next_deadline() if self.phase is Phase.ACTIVE else None
        if at_s is not None:
            at_s = max(at_s, self._not_before_s)
        if self._timer is not None:
            if at_s is not None and self._timer_at_s <= at_s:
                return
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            # Kept beside the handle: what uvloop returns for a time that has passed knows none.
            self._timer_at_s = at_s
            self._timer = asyncio.get_running_loop().call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        assert self._timer is not None
        due_s, self._timer = self._timer_at_s, None
        now = self._now()
        if now.s - due_s >= STALL_S and due_s > self._not_before_s:
            _LOG.warning("coordinator.stalled shard=%s seconds=%.1f", self._name, now.s - due_s)
            self._not_before_s = now.s + STALL_GRACE_S
            self._arm()
            return
        self._perform(self._shard.on_deadline(now))

    def _on_log_failed(self, error: BrokerError) -> None:
        """The log's end is unknown: forget everything and read it again, if we still lead it."""
        if self.phase is not Phase.ACTIVE:
            return
        _LOG.warning("coordinator.log_failed shard=%s error=%r", self._name, error)
        self.phase = Phase.LOADING
        self._copy.cancel()
        self._give_up(NotCoordinator(str(error)))
        self.start()

    def _give_up(self, error: GroupError) -> None:
        shard, self._shard = self._shard, GroupShard(self._config, self._new_member_id)
        self._log.close(error)
        self._perform(shard.unload(error))
        for future in self._calls.values():
            if not future.done():
                future.set_exception(error)

    # --- loading ------------------------------------------------------------------------------

    async def _load(self) -> None:
        pause_s = _RETRY_S_MIN
        while True:
            try:
                await self._read_log()
            except QuireError as error:
                # A leadership in doubt may be confirmed again; if it is lost, `close` ends this.
                if not error.retriable:
                    _LOG.exception("coordinator.load_failed shard=%s", self._name)
                    self.phase = Phase.FAILED
                    return
                _LOG.warning("coordinator.load_retried shard=%s error=%r", self._name, error)
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_S_MAX)

    async def _read_log(self) -> None:
        shard = GroupShard(self._config, self._new_member_id)
        log = GroupLog(self.partition, self._on_log_failed)
        started_s = asyncio.get_running_loop().time()
        count = 0
        async for found in log.read():
            for record in found:
                shard.replay(record)
            count += len(found)
            await asyncio.sleep(0)  # other partitions of this broker want to be served meanwhile
        self._shard, self._log = shard, log
        self.phase = Phase.ACTIVE
        now = self._now()
        _LOG.info(
            "coordinator.active shard=%s records=%d bytes=%d groups=%d seconds=%.3f",
            self._name, count, log.bytes_since_copy, len(shard.view.group_ids()), now.s - started_s,
        )  # fmt: skip
        self._perform(shard.loaded(now))
        self._copy.start_if_due(self._log, self._shard.view)


def _as_group_error(error: BrokerError) -> BrokerError:
    """Say what a refused append means to a group's client."""
    if isinstance(error, LeadershipError):
        return NotCoordinator(str(error))
    if isinstance(error, LogError):
        return CoordinatorNotAvailable(str(error))
    return error
