"""The states and deadlines of a classic group.

Requests are decided in `group`, which then calls the methods below. Who is in the group is kept in
`group_members`, whom a rebalance waits for in `rebalance`.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance
      ▲                    ▲      │                                      │           │
      └─── nobody left ────┼──────┘         join, leave, member lost     │   the leader's
                           ├─────────────────────────────────────────────┘   assignment is durable
                           └──────────── join, leave, member lost ── Stable ◀────────┘
    Empty ──delete──▶ Dead

Two kinds of state. *Stored* state (`stored`) is the group's last complete generation; only
`replay` changes it, so a new coordinator that replays the log knows exactly as much. *Live*
state (a rebalance under way, parked requests, deadlines) dies with the coordinator; members
then rejoin. A generation's assignments are handed out only from stored state, after the append
is durable: no fail-over can forget an assignment that a member acts on.

Time: `next_deadline` may be early, never late. Heartbeats move a member's own deadline without
touching it, which keeps them O(1); a wake-up that finds nothing due computes the next one.

Sources: Kafka's ClassicGroup and GroupMetadataManager; KIP-62, KIP-345, KIP-814.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.coordinator.core.coordinator_types import Now, Reply, Ticket, Token
from broker.errors import BrokerError, RebalanceInProgress, UnknownMember
from broker.groups.core.consumer_protocol import PROTOCOL_TYPE
from broker.groups.core.group_members import (
    Member,
    MemberBytes,
    Membership,
    PromisedIds,
    joined_members,
    stored_members,
)
from broker.groups.core.group_stores import (
    AssignmentStore,
    EmptyStore,
    PendingStore,
    PendingStores,
    StaticStore,
)
from broker.groups.core.group_types import (
    REBALANCING,
    Event,
    GroupConfig,
    GroupEffect,
    GroupEffects,
    GroupMetadata,
    GroupState,
    JoinReply,
    Store,
    SyncReply,
)
from broker.groups.core.rebalance import AwaitedSyncs, JoinWindow

EMPTY: Final = GroupState.EMPTY
PREPARING: Final = GroupState.PREPARING
COMPLETING: Final = GroupState.COMPLETING
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

TRANSITIONS: Final = {
    EMPTY: (PREPARING, DEAD),
    PREPARING: (COMPLETING, EMPTY),
    COMPLETING: (STABLE, PREPARING),
    STABLE: (PREPARING,),
    DEAD: (EMPTY,),  # a delete that the log refused
}

REWAIT_MS_MIN: Final = 1_000
"""Shortest further wait for a rebalance that nobody joined; keeps odd timeouts from spinning."""


class GroupMachine:
    """States and deadlines of one group. Public methods return effects, in order."""

    def __init__(
        self,
        group_id: str,
        config: GroupConfig,
        *,
        new_member_id: Callable[[str], str],
        new_ticket: Callable[[], Ticket],
        member_bytes: MemberBytes,
    ) -> None:
        """Start Empty. `new_member_id` makes a unique id out of a prefix."""
        self.group_id = group_id
        self.state = EMPTY
        self.state_since_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Membership(member_bytes)
        self.stored: GroupMetadata | None = None
        self.stores = PendingStores(new_ticket)
        """While there are any, the log may hold newer metadata than `stored`."""
        self._config = config
        self._promised = PromisedIds(new_member_id)
        self._joining = JoinWindow()
        self._syncs = AwaitedSyncs()
        self._wake_s: float | None = None
        self._effects: list[GroupEffect] = []

    # --- the log ------------------------------------------------------------------------------

    def replay(self, metadata: GroupMetadata | None) -> None:
        """Take over a durable record: the only way stored state changes."""
        self.stored = metadata

    def restore(self, now: Now) -> GroupEffects:
        """Make the stored generation live after a load; every member gets a fresh session."""
        stored = self.stored
        if stored is None:
            return ()
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type or None
        self.protocol = stored.protocol
        self.state_since_ms = stored.state_since_ms
        if not stored.members:
            return ()
        self.state = STABLE
        for one in stored.members:
            member = Member.restored(one, stored.protocol_type, stored.protocol or "")
            self.members.add(member)
            self._touch(member, now)
        if stored.leader is not None and stored.leader in self.members:
            self.members.leader = stored.leader
        if len(self.members) > self._config.group_size_max:
            self._prepare("the group is larger than its limit", now)
        return self._take()

    def on_stored(self, ticket: Ticket, now: Now) -> GroupEffects:
        """Go on after a Store was replayed."""
        store = self.stores.pop(ticket)
        if isinstance(store, AssignmentStore):
            if self._is_current(COMPLETING, store.generation):
                self._adopt_assignment(now)
        elif isinstance(store, StaticStore):
            self._answer_static(store, now)
        return self._take()

    def on_store_failed(self, ticket: Ticket, error: BrokerError, now: Now) -> GroupEffects:
        """Go on after the log refused a Store: nothing of it is durable."""
        store = self.stores.pop(ticket)
        if isinstance(store, AssignmentStore):
            if self._is_current(COMPLETING, store.generation):
                self._drop_assignment(error, now)
                self._prepare("the assignment could not be stored", now)
        elif isinstance(store, StaticStore):
            self._revert_static(store, error, now)
        return self._take()

    def mark_dead(self, now: Now) -> None:
        """Refuse everything while the tombstones of an empty group are on their way."""
        self._promised.clear()
        self._enter(DEAD, now)

    def revive(self, now: Now) -> None:
        """Undo `mark_dead`: the log refused the tombstones."""
        self._enter(EMPTY, now)

    def unload(self, error: BrokerError) -> GroupEffects:
        """Answer all parked requests: this broker no longer coordinates the group."""
        for member in self.members:
            self._answer_join(member, error)
            self._answer_sync(member, error)
        return self._take()

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `on_deadline` wants to be called; perhaps early, never late."""
        return self._wake_s

    def on_deadline(self, now: Now) -> GroupEffects:
        """Do what is due."""
        self._expire_members(now)
        if self._syncs.deadline_s is not None and self._syncs.deadline_s <= now.s:
            self._expire_sync(now)
        if self._joining.deadline_s is not None and self._joining.deadline_s <= now.s:
            self._on_join_deadline(now)
        deadlines = [member.expires_s for member in self.members if member.expires_s is not None]
        deadlines += self._promised.deadlines()
        waits = (self._syncs.deadline_s, self._joining.deadline_s)
        deadlines += (at_s for at_s in waits if at_s is not None)
        self._wake_s = min(deadlines, default=None)
        return self._take()

    # --- inspection ---------------------------------------------------------------------------

    def is_unused(self) -> bool:
        """Whether nobody is in the group or about to join, and no metadata on its way."""
        return self.state is EMPTY and not self._promised and not self.stores

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that members consume; None if that cannot be known."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        return self.members.subscribed_topics(self.protocol)

    def check(self) -> None:
        """Assert the invariants of states, deadlines and parked requests."""
        self.members.check()
        waits_join = any(member.join_token is not None for member in self.members)
        waits_sync = any(member.sync_token is not None for member in self.members)
        assert not waits_sync or self.state is COMPLETING
        assert not waits_join or self.state is PREPARING or self.stores.has_static
        assert (self._joining.deadline_s is not None) == (self.state is PREPARING)
        assert not self._joining.is_first or self.state is PREPARING
        assert not self._syncs or self.state in (COMPLETING, STABLE)
        assert not len(self.members) or self.state not in (EMPTY, DEAD)
        assert len(self.members) or self.state not in (COMPLETING, STABLE)
        assert all(member_id in self.members for member_id in self._syncs)
        assert not any(member.member_id in self._promised for member in self.members)
        assert all(member.expires_s is not None or member.parked for member in self.members)
        assert self.stored is None or self.stored.generation <= self.generation
        assert not self._effects

    # --- the rebalance ------------------------------------------------------------------------

    def _rebalance_or_complete(self, reason: str, now: Now) -> None:
        if self.state is PREPARING:
            self._complete_if_joined(now)
        else:
            self._prepare(reason, now)

    def _prepare(self, reason: str, now: Now) -> None:
        if self.state is COMPLETING:
            self._drop_assignment(RebalanceInProgress(self.group_id), now)
        self._syncs.clear()
        first = self.state is EMPTY
        self._enter(PREPARING, now)
        self._event(REBALANCING, reason)
        timeout_ms = self.members.rebalance_timeout_ms()
        if first:
            delay_ms = self._config.initial_rebalance_delay_ms
            self._wake_by(self._joining.open_first(now.s, timeout_ms, delay_ms))
        else:
            self._wake_by(self._joining.open(now.s, timeout_ms))
            self._complete_if_joined(now)

    def _on_join_deadline(self, now: Now) -> None:
        at_s = self._joining.extend(now.s, self._config.initial_rebalance_delay_ms)
        if at_s is None:
            self._complete_join(now)
        else:
            self._wake_by(at_s)

    def _complete_if_joined(self, now: Now) -> None:
        """Complete a rebalance early; the first one of a group always waits its delay."""
        if (
            self.state is PREPARING
            and not self._joining.is_first
            and not self._promised
            and self.members.all_joined()
        ):
            self._complete_join(now)

    def _complete_join(self, now: Now) -> None:
        late = [
            one.member_id
            for one in self.members
            if one.join_token is None and one.instance_id is None
        ]
        for member_id in late:
            self._remove(member_id)
        if not self.members.elect_joined_leader() and len(self.members):
            # Only static members are left and none came back: their sessions decide.
            timeout_ms = max(self.members.rebalance_timeout_ms(), REWAIT_MS_MIN)
            self._wake_by(self._joining.open(now.s, timeout_ms))
            return
        self._joining.close()
        self.generation += 1
        if not len(self.members):
            self.protocol = None
            self._enter(EMPTY, now)
            self._event("group.empty", "the last member is gone")
            self._store(self._metadata({}, now), EmptyStore())
            return
        self.protocol = self.members.elect_protocol()
        self._enter(COMPLETING, now)
        self._event("group.joined", f"dropped {len(late)} late members" if late else "all joined")
        for member in self.members:
            member.is_new = False
            self._answer_join(member, self._join_reply(member))
            self._touch(member, now)
        sync_by_s = now.s + self.members.rebalance_timeout_ms() / 1000
        self._syncs.expect((member.member_id for member in self.members), sync_by_s)
        self._wake_by(sync_by_s)

    def _join_reply(self, member: Member) -> JoinReply:
        leader = self.members.leader
        assert leader is not None
        shown = joined_members(self.members, self.protocol) if leader == member.member_id else ()
        return JoinReply(
            member.member_id, self.generation, self.protocol_type, self.protocol, leader, shown
        )

    # --- the assignment -----------------------------------------------------------------------

    def _adopt_assignment(self, now: Now) -> None:
        stored = self.stored
        assert stored is not None
        assert stored.generation == self.generation
        assignments = {one.member_id: one.assignment for one in stored.members}
        self._enter(STABLE, now)
        self._event("group.stable", "assignment stored")
        for member in self.members:
            self.members.bytes.assign(member, assignments.get(member.member_id, b""))
            self._answer_sync(
                member, SyncReply(self.protocol_type, self.protocol, member.assignment)
            )
            self._touch(member, now)

    def _drop_assignment(self, error: BrokerError, now: Now) -> None:
        for member in self.members:
            self.members.bytes.assign(member, b"")
            if member.sync_token is not None:
                self._answer_sync(member, error)
                self._touch(member, now)

    def _metadata(self, assignments: dict[str, bytes], now: Now) -> GroupMetadata:
        """Return the group as it would be stored; members without assignment get b""."""
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.members.leader,
            state_since_ms=now.ms,
            members=stored_members(self.members, self.protocol, assignments),
        )

    def _store(self, metadata: GroupMetadata, store: PendingStore) -> None:
        self._effects.append(Store(self.stores.add(store), metadata))

    # --- a static member's new id ---------------------------------------------------------------

    def _answer_static(self, store: StaticStore, now: Now) -> None:
        member = self.members.get(store.member_id)
        if member is None or member.join_token != store.token:
            return  # replaced again, removed, or answered by a rebalance in between
        if not self._is_current(STABLE, store.generation):
            return  # parked in a rebalance by now: its completion answers
        reply = self._join_reply(member)
        if store.can_skip_assignment:
            reply = reply._replace(skip_assignment=store.member_id == self.members.leader)
        else:
            # An old client that reads its own id as the leader's would assign although nobody
            # waits for an assignment: it is shown the previous leader's id.
            reply = reply._replace(members=(), leader=store.old_leader or "")
        self._answer_join(member, reply)
        self._touch(member, now)

    def _revert_static(self, store: StaticStore, error: BrokerError, now: Now) -> None:
        member = self.members.get(store.member_id)
        if member is None or member.join_token != store.token:
            return
        if self._is_current(STABLE, store.generation):
            self._answer_join(member, error)
            self.members.rename(store.member_id, store.old_member_id)
            self._touch(member, now)

    # --- removal and expiry -------------------------------------------------------------------

    def _remove(self, member_id: str) -> bool:
        member = self.members.remove(member_id)
        if member is None:
            return False
        self._syncs.drop(member_id)
        self._answer_join(member, UnknownMember(member_id))
        self._answer_sync(member, UnknownMember(member_id))
        return True

    def _after_removal(self, reason: str, now: Now) -> None:
        if self.state in (COMPLETING, STABLE):
            self._prepare(reason, now)
        else:
            self._complete_if_joined(now)

    def _expire_members(self, now: Now) -> None:
        lost = self._promised.expire(now.s)
        removed = False
        for member in list(self.members):
            if member.expires_s is None or member.expires_s > now.s:
                continue
            if member.parked and not member.is_new:
                member.expires_s = None  # it waits for us; its session restarts with the answer
            else:
                lost.append(member.member_id)
                removed = self._remove(member.member_id)
        if removed:
            self._after_removal(f"sessions expired: {', '.join(lost)}", now)
        elif lost:
            self._complete_if_joined(now)

    def _expire_sync(self, now: Now) -> None:
        late = list(self._syncs)
        for member_id in late:
            self._remove(member_id)
        self._prepare(f"no sync in time from {', '.join(late)}", now)

    # --- small things -------------------------------------------------------------------------

    def _is_current(self, state: GroupState, generation: int) -> bool:
        return self.state is state and self.generation == generation

    def _enter(self, state: GroupState, now: Now) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
        self.state_since_ms = now.ms

    def _touch(self, member: Member, now: Now) -> None:
        member.expires_s = now.s + member.session_timeout_ms / 1000
        self._wake_by(member.expires_s)

    def _wake_by(self, at_s: float) -> None:
        if self._wake_s is None or at_s < self._wake_s:
            self._wake_s = at_s

    def _answer_join(self, member: Member, result: object) -> None:
        if member.join_token is not None:
            self._reply(member.join_token, result)
            member.join_token = None

    def _answer_sync(self, member: Member, result: object) -> None:
        if member.sync_token is not None:
            self._reply(member.sync_token, result)
            member.sync_token = None

    def _reply(self, token: Token, result: object) -> None:
        self._effects.append(Reply(token, result))

    def _event(self, name: str, reason: str) -> None:
        self._effects.append(Event(name, self.group_id, self.generation, len(self.members), reason))

    def _take(self) -> GroupEffects:
        effects, self._effects = self._effects, []
        return effects
