"""What each request does to a group, and when: the rules, states and deadlines of the classic group
protocol.

    request            Empty           PreparingReb.     CompletingReb.      Stable
    join, new member   start rebalance park              restart rebalance   start rebalance
    join, known, same  UnknownMember   park              current generation  current generation;
                                                                             leader: rebalance
    join, known, new   UnknownMember   park              restart rebalance   start rebalance
    sync               UnknownMember   RebalanceInProgr. park; leader stores stored assignment
    heartbeat          UnknownMember   RebalanceInProgr. fine                fine
    commit, member     UnknownMember   accepted          RebalanceInProgr.   accepted
    commit, outsider   accepted        UnknownMember     UnknownMember       UnknownMember
    leave              UnknownMember   remove            remove, rebalance   remove, rebalance

Dead refuses everything with CoordinatorNotAvailable. A heartbeat, join, sync or commit that is
accepted renews the member's session. A method that raises has changed nothing.

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

Who is in the group is kept in `group_members`, whom a rebalance waits for in `rebalance`.

Sources: Kafka's ClassicGroup and GroupMetadataManager (classicGroup*); KIP-62, KIP-345 (static
members), KIP-394 (member id required), KIP-814.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.coordinator.core.coordinator_types import Now, Reply, Ticket, Token
from broker.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupError,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from broker.groups.core.consumer_protocol import PROTOCOL_TYPE
from broker.groups.core.group_members import (
    Member,
    MemberBytes,
    Membership,
    PromisedIds,
    joined_members,
    stored_members,
)
from broker.groups.core.group_types import (
    NO_GENERATION,
    NO_MEMBER,
    REBALANCING,
    Commit,
    Event,
    GroupConfig,
    GroupDescription,
    GroupEffect,
    GroupEffects,
    GroupMetadata,
    GroupState,
    Heartbeat,
    Join,
    JoinReply,
    Leaving,
    MemberDescription,
    OffsetToCommit,
    Store,
    Sync,
    SyncReply,
)
from broker.groups.core.rebalance import AwaitedSyncs, JoinWindow


class AssignmentStore(NamedTuple):
    """The leader's assignment of a generation is on its way into the log."""

    generation: int


class StaticStore(NamedTuple):
    """A static member's new id is on its way into the log."""

    generation: int
    member_id: str
    old_member_id: str
    old_leader: str | None
    can_skip_assignment: bool
    token: Token


class EmptyStore(NamedTuple):
    """The end of the last generation is on its way into the log; nobody waits for it."""


PendingStore = AssignmentStore | StaticStore | EmptyStore


class PendingStores:
    """What one group has on its way into the log."""

    __slots__ = ("_new_ticket", "_stores")

    def __init__(self, new_ticket: Callable[[], Ticket]) -> None:
        self._new_ticket = new_ticket
        self._stores: dict[Ticket, PendingStore] = {}

    def __len__(self) -> int:
        return len(self._stores)

    def add(self, store: PendingStore) -> Ticket:
        """Remember a store that begins; return its ticket."""
        ticket = self._new_ticket()
        self._stores[ticket] = store
        return ticket

    def pop(self, ticket: Ticket) -> PendingStore:
        """Forget a store that is over, and return it."""
        return self._stores.pop(ticket)

    def has_assignment(self, generation: int) -> bool:
        """Whether the assignment of a generation is among them."""
        return any(
            isinstance(one, AssignmentStore) and one.generation == generation
            for one in self._stores.values()
        )

    @property
    def has_static(self) -> bool:
        """Whether a static member's new id is among them."""
        return any(isinstance(one, StaticStore) for one in self._stores.values())


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


class Group:
    """One group, with the requests that drive it. Public methods return effects, in order."""

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

    # --- requests -----------------------------------------------------------------------------

    def join(self, request: Join, token: Token, now: Now) -> GroupEffects:
        """Take a JoinGroup; the answer may be parked until the rebalance completes.

        Raises GroupError.
        """
        config = self._config
        timeout_ms = request.session_timeout_ms
        if not config.session_timeout_min_ms <= timeout_ms <= config.session_timeout_max_ms:
            raise InvalidSessionTimeout(f"a session timeout of {timeout_ms} ms is out of range")
        self._check_alive()
        if not self._has_room(request.member_id):
            return self._turn_away(request.member_id, token, now)
        if not self._speaks(request):
            raise InconsistentGroupProtocol(self.group_id)
        if request.member_id == NO_MEMBER:
            self._join_new(request, token, now)
        elif request.member_id in self._promised and request.instance_id is None:
            self._add_member(request, request.member_id, token, now)
        else:
            member = self._valid_member(request.member_id, request.instance_id)
            self._join_known(member, request, token, now)
        return self._take()

    def sync(self, request: Sync, token: Token, now: Now) -> GroupEffects:
        """Take a SyncGroup; parked until the leader's assignment is durable. Raises GroupError."""
        self._check_alive()
        member = self._valid_member(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if request.protocol_type not in (None, self.protocol_type) or (
            request.protocol_name not in (None, self.protocol)
        ):
            raise InconsistentGroupProtocol(self.group_id)
        if self.state is PREPARING:
            raise RebalanceInProgress(self.group_id)
        self._touch(member, now)
        self._syncs.drop(member.member_id)
        if self.state is STABLE:
            self._reply(token, SyncReply(self.protocol_type, self.protocol, member.assignment))
            return self._take()
        self._supersede(member.sync_token)
        member.sync_token = token
        is_stored = self.stores.has_assignment(self.generation)
        if member.member_id == self.members.leader and not is_stored:
            # One that syncs again must not replace what may be durable at this moment.
            metadata = self._metadata(dict(request.assignments), now)
            self._store(metadata, AssignmentStore(self.generation))
        return self._take()

    def heartbeat(self, request: Heartbeat, now: Now) -> GroupError | None:
        """Renew a session. Returns RebalanceInProgress if the member has to join again.

        Raises GroupError where the session was not renewed.
        """
        self._check_alive()
        member = self._valid_member(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        self._touch(member, now)
        return RebalanceInProgress(self.group_id) if self.state is PREPARING else None

    def leave(
        self, leaving: Sequence[Leaving], now: Now
    ) -> tuple[tuple[GroupError | None, ...], GroupEffects]:
        """Remove members; one rebalance for all. Returns an outcome for each, in order."""
        self._check_alive()
        count = len(self.members)
        outcomes = tuple(self._leave_one(one) for one in leaving)
        if len(self.members) < count:
            self._after_removal("members left", now)
        else:  # who only had an id is missed by nobody but a rebalance that waits for it
            self._complete_if_joined(now)
        return outcomes, self._take()

    def check_commit(
        self,
        commit: Commit,
        now: Now,
        *,
        offsets: Sequence[OffsetToCommit] = (),
        is_transactional: bool = False,
    ) -> None:
        """Decide whether offsets may be committed, and renew the session. Raises GroupError.

        A transactional producer may be no member, and may commit while members have no assignment
        yet: it belongs to the generation that it names.
        """
        self._check_alive()
        outsider = commit.generation <= NO_GENERATION
        if outsider and self.state is EMPTY:
            return
        if outsider and commit.member_id == NO_MEMBER and commit.instance_id is None:
            if is_transactional:
                return
            raise UnknownMember("only members may commit while the group has members")
        member = self._valid_member(commit.member_id, commit.instance_id)
        self._check_generation(commit.generation)
        if self.state is COMPLETING and not is_transactional:
            raise RebalanceInProgress(self.group_id)
        self._touch(member, now)

    def describe(self) -> GroupDescription:
        """Return what tools show. Blobs are shown only of a stable generation."""
        stable = self.state is STABLE
        return GroupDescription(
            self.group_id,
            self.state,
            self.protocol_type or "",
            (self.protocol or "") if stable else "",
            tuple(
                MemberDescription(
                    one.member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    one.metadata(self.protocol) if stable else b"",
                    one.assignment if stable else b"",
                )
                for one in self.members
            ),
        )

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

    @property
    def kept_bytes(self) -> int:
        """What the members gave us to keep, and were assigned."""
        return sum(member.kept_bytes for member in self.members)

    def kept_of(self, member_id: str) -> int:
        """The same for one member, 0 for a stranger."""
        member = self.members.get(member_id)
        return 0 if member is None else member.kept_bytes

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

    # --- joining ------------------------------------------------------------------------------

    def _has_room(self, member_id: str) -> bool:
        """Whether a join fits. While members rejoin, those that did are what counts."""
        limit = self._config.group_size_max
        member = self.members.get(member_id)
        if self.state is PREPARING:
            if member is not None and member.join_token is not None:
                return True
            joined = sum(one.join_token is not None for one in self.members)
            return joined + len(self._promised) - (member_id in self._promised) < limit
        if member is not None or member_id in self._promised:
            return True
        return len(self.members) + len(self._promised) < limit

    def _turn_away(self, member_id: str, token: Token, now: Now) -> GroupEffects:
        self._promised.drop(member_id)
        self._remove(member_id)
        self._reply(token, GroupMaxSizeReached(self.group_id))
        self._complete_if_joined(now)
        return self._take()

    def _speaks(self, request: Join) -> bool:
        if not request.protocol_type or not request.protocols:
            return False
        if self.state is EMPTY:
            return True
        return request.protocol_type == self.protocol_type and self.members.speaks(
            request.protocols
        )

    def _join_new(self, request: Join, token: Token, now: Now) -> None:
        member_id = self._promised.make(request.instance_id or request.client_id)
        if request.instance_id is not None:
            old_id = self.members.static.get(request.instance_id)
            if old_id is None:
                self._add_member(request, member_id, token, now)
            else:
                self._replace_static(request, old_id, member_id, token, now)
        elif request.requires_member_id:
            expires_s = now.s + request.session_timeout_ms / 1000
            self._promised.promise(member_id, expires_s)
            self._wake_by(expires_s)
            self._reply(token, MemberIdRequired(member_id))
        else:
            self._add_member(request, member_id, token, now)

    def _join_known(self, member: Member, request: Join, token: Token, now: Now) -> None:
        same = member.protocols == request.protocols
        leads = member.member_id == self.members.leader
        if same and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            # It may never have got the first answer: give it again.
            self._touch(member, now)
            self._reply(token, self._join_reply(member))
        else:
            # A leader joins again when something outside its metadata changed, for example
            # the partition count of a topic; only a rebalance lets it assign anew.
            self._park_join(member, request, token, now)
            why = "the leader joined again" if same else "a member's metadata changed"
            self._rebalance_or_complete(f"{why}: {request.reason or member.member_id}", now)

    def _park_join(self, member: Member, request: Join, token: Token, now: Now) -> None:
        self.members.update(member, request)
        self._supersede(member.join_token)
        member.join_token = token
        self._touch(member, now)

    def _add_member(self, request: Join, member_id: str, token: Token, now: Now) -> None:
        self._promised.drop(member_id)
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self._joining.on_joined()
        member = Member(member_id, request)
        member.join_token = token
        # No heartbeat can come before the join answer, and a client that gives up and retries
        # leaves a ghost behind: so a generous deadline instead of the session's.
        member.expires_s = now.s + self._config.new_member_join_timeout_ms / 1000
        self._wake_by(member.expires_s)
        self.members.add(member)
        self._rebalance_or_complete(f"a member joined: {request.reason or member_id}", now)

    def _replace_static(
        self, request: Join, old_id: str, new_id: str, token: Token, now: Now
    ) -> None:
        old_leader = self.members.leader
        old_topics = self.subscribed_topics()
        member = self.members.rename(old_id, new_id)
        self._syncs.rename(old_id, new_id)
        self._answer_join(member, FencedInstanceId(old_id))
        self._answer_sync(member, FencedInstanceId(old_id))
        self._park_join(member, request, token, now)
        if (
            self.state is STABLE
            and self.members.elect_protocol() == self.protocol
            and self.subscribed_topics() == old_topics
        ):
            # Nothing that the others see changes, so only the new id must become durable.
            # (Kafka ignores changed topics here and leaves them unassigned.)
            self._store(
                self._metadata({one.member_id: one.assignment for one in self.members}, now),
                StaticStore(
                    self.generation,
                    new_id,
                    old_id,
                    old_leader,
                    request.can_skip_assignment,
                    token,
                ),
            )
        else:
            # In Completing the leader may be assigning to the old id at this moment.
            self._rebalance_or_complete("a static member was replaced", now)

    def _supersede(self, token: Token | None) -> None:
        """Answer a request that the same member's newer one replaces."""
        if token is not None:
            self._reply(token, RebalanceInProgress(self.group_id))

    # --- leaving and checks -------------------------------------------------------------------

    def _leave_one(self, leaving: Leaving) -> GroupError | None:
        member_id = leaving.member_id
        if member_id == NO_MEMBER:
            # An administrator removes a static member by its instance id alone.
            member_id = self.members.static.get(leaving.instance_id or "", NO_MEMBER)
        elif self._promised.drop(member_id):
            return None
        else:
            try:
                self._valid_member(member_id, leaving.instance_id)
            except GroupError as error:
                return error
        return None if self._remove(member_id) else UnknownMember(leaving.member_id)

    def _check_alive(self) -> None:
        if self.state is DEAD:
            raise CoordinatorNotAvailable(f"group {self.group_id} is being deleted")

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(
                f"generation {generation} is not the current one, {self.generation}"
            )

    def _valid_member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            holder = self.members.static.get(instance_id)
            if holder is None:
                raise UnknownMember(member_id)
            if holder != member_id:
                raise FencedInstanceId(member_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(member_id)
        return member

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
