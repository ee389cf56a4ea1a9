"""What each heartbeat does to a consumer group: the rules of KIP-848, in which the broker divides
the partitions and nobody stops while one member is moved.

One request does it all, the heartbeat. It says at which epoch the member is, what it wants and what
it owns; the answer says its epoch and, if it changed, what it may read.

    epoch 0    join, or join again after a fence; owns nothing
    epoch > 0  still there; the epoch it was told last, or the one before if the answer was lost
    epoch -1   leave
    epoch -2   a static member goes, and its successor of the same instance id will come

    1  a member comes, goes, or wants other topics, or its topics changed  → the group's epoch grows
    2  the group's epoch is beyond the target's                           → a new target assignment
    3  a member's epoch is behind the target's                            → `reconciliation`

ONE-BATCH    What a heartbeat changes is prepared on a copy of the durable state, and written as one
             batch. While a batch is on its way, further heartbeats of the group wait, and are then
             served together.
ANSWER-LATE  An answer that rests on a change is given when the change is durable.
LOST-ANSWER  A member at the epoch before its own is served as if it were at its own, provided it
             owns nothing but what it has been assigned: it did not hear the last answer.
GONE-IS-OUT  A member whose session ends, or that does not give up in time what it has to
             (`rebalance_timeout_ms`), is removed: its partitions are free at once.

Only assignments, epochs and subscriptions are durable. Sessions begin anew with each coordinator.

    Empty ──join──▶ Assigning ──target made──▶ Reconciling ──all members there──▶ Stable
      ▲                 ▲                          │                                │
      └── nobody left ──┴──── join, leave, topics changed, member lost ─────────────┘

Source: Kafka's ConsumerGroup and GroupMetadataManager (consumerGroup*); KIP-848, KIP-1251.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from broker.coordinator.core.coordinator_types import Now, Reply, Ticket, Token
from broker.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from broker.groups.core.assignors import ASSIGNORS, Wish
from broker.groups.core.consumer_group_description import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
)
from broker.groups.core.consumer_group_records import (
    ConsumerGroupEntry,
    Current,
    Held,
    Matches,
    MemberState,
    Part,
    PartValue,
    Subscriber,
    TargetEpoch,
)
from broker.groups.core.consumer_group_state import NOTHING, ConsumerGroupState
from broker.groups.core.consumer_heartbeat import (
    JOINING,
    LEAVING_STATIC,
    UNKNOWN,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from broker.groups.core.consumer_protocol import PROTOCOL_TYPE, assignment_bytes
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
    GroupState,
    GroupType,
    MemberDescription,
    OffsetToCommit,
    StoreEntries,
)
from broker.groups.core.reconciliation import reconcile, within
from broker.security.core.linear_pattern import LinearPattern

PATTERN_PAUSE_S: Final = 1.0
"""How soon a pattern is matched again when topics have come or gone."""
PATTERN_LIFE_S: Final = 600.0
"""How soon it is matched again in any case, because rights change."""
RETRY_PAUSE_S: Final = 0.5
"""How soon what is due is tried again that the log refused."""
ENTRIES_MAX: Final = 10_000
"""Entries of a batch after which further heartbeats wait for the next one."""


class Topic(NamedTuple):
    """A topic as assignments see it."""

    topic_id: UUID
    partition_count: int


class Topics(Protocol):
    """The topics of the cluster, as far as this broker knows them."""

    @property
    def version(self) -> int:
        """Grows whenever a topic comes, goes or gets partitions."""
        ...

    def get(self, name: str) -> Topic | None:
        """Return a topic, None if there is none of that name."""
        ...

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, None if there is no such topic."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        ...


class _Waiting(NamedTuple):
    """A heartbeat that has not been looked at."""

    request: ConsumerHeartbeat
    token: Token


class ConsumerGroup:
    """One group, with the requests that drive it. Public methods return effects, in order."""

    protocol_type = PROTOCOL_TYPE
    group_type = GroupType.CONSUMER

    def __init__(
        self,
        group_id: str,
        config: GroupConfig,
        topics: Topics,
        *,
        new_ticket: Callable[[], Ticket],
    ) -> None:
        """Start empty."""
        self.group_id = group_id
        self.durable = ConsumerGroupState()
        """What the log holds for certain."""
        self.state_since_ms = -1
        self._config = config
        self._topics = topics
        self._new_ticket = new_ticket
        self._is_dead = False
        self._ticket: Ticket | None = None
        """Of the batch that is on its way."""
        self._draft: ConsumerGroupState | None = None
        """What will be durable with it; while one is prepared, what it has come to."""
        self._entries: list[ConsumerGroupEntry] = []
        self._sent: tuple[ConsumerGroupEntry, ...] = ()
        """What is in that batch."""
        self._replies: list[Reply] = []
        """Answers that wait for the batch."""
        self._waiting: list[_Waiting] = []
        self._sessions: dict[str, float] = {}
        """When each member's session ends."""
        self._revoke_by: dict[str, float] = {}
        """Until when members have to give up what they have to."""
        self._matched: dict[str, tuple[int, float]] = {}
        """For which version of the topics each pattern was matched here, and when."""
        self._topics_version: int | None = None
        """Version of the topics for which the group's epoch is right."""
        self._is_hash_due = False
        self._assign_at_s: float | None = None
        """When the target may be made that has to wait."""
        self._wake_s: float | None = None
        self._effects: list[GroupEffect] = []

    # --- the log ------------------------------------------------------------------------------

    def replay(self, entry: ConsumerGroupEntry) -> None:
        """Take over a durable record: the only way durable state changes."""
        self.durable.apply(entry)

    def restore(self, now: Now) -> GroupEffects:
        """Begin to serve after a load: every member gets a fresh session."""
        self.state_since_ms = now.ms
        for member_id in self.durable.members:
            self._touch(member_id, now)
        self._restore_revocations(now)
        return self._take()

    def _restore_revocations(self, now: Now) -> None:
        """Who has to give something up by what is durable has time for it, and nobody else."""
        current = self.durable.current
        waited_for = {one for one in current if current[one].state is MemberState.UNREVOKED}
        for member_id in self._revoke_by.keys() - waited_for:
            del self._revoke_by[member_id]
        for member_id in sorted(waited_for - self._revoke_by.keys()):
            self._give_time(member_id, now)

    def on_stored(self, ticket: Ticket, now: Now) -> GroupEffects:
        """Go on after a batch was replayed: answer, and serve who waits."""
        assert ticket == self._ticket
        replies = self._settle(now)
        self._effects += replies
        self._serve_waiting(now)
        return self._take()

    def on_store_failed(self, ticket: Ticket, error: BrokerError, now: Now) -> GroupEffects:
        """Go on after the log refused a batch: nothing of it is durable."""
        assert ticket == self._ticket
        self._is_hash_due = True
        self._topics_version = None
        self._matched.clear()
        replies = self._settle(now)
        self._restore_revocations(now)
        if self._wake_s is not None:
            self._wake_s = max(self._wake_s, now.s + RETRY_PAUSE_S)
        self._effects += (reply._replace(result=error) for reply in replies)
        self._serve_waiting(now)
        return self._take()

    def _settle(self, now: Now) -> list[Reply]:
        self._ticket = self._draft = None
        self._sent = ()
        replies, self._replies = self._replies, []
        for member_id in [one for one in self._sessions if one not in self.durable.members]:
            self._forget_times(member_id)
        if not self.durable.members:
            self.state_since_ms = now.ms
        return replies

    def mark_dead(self, now: Now) -> None:
        """Refuse everything while the tombstones of an empty group are on their way."""
        self._is_dead = True

    def revive(self, now: Now) -> None:
        """Undo `mark_dead`: the log refused the tombstones."""
        self._is_dead = False

    def unload(self, error: BrokerError) -> GroupEffects:
        """Answer all that wait: this broker no longer coordinates the group."""
        self._effects += (reply._replace(result=error) for reply in self._replies)
        self._effects += (Reply(one.token, error) for one in self._waiting)
        self._replies, self._waiting = [], []
        return self._take()

    # --- requests -----------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeat, token: Token, now: Now) -> GroupEffects:
        """Take a heartbeat that `check_heartbeat` let pass; the answer may wait for the log."""
        self._waiting.append(_Waiting(request, token))
        self._serve_waiting(now)
        return self._take()

    def _serve_waiting(self, now: Now) -> None:
        """Serve heartbeats until a batch is on its way, or nobody waits."""
        while self._waiting and self._ticket is None:
            waiting, self._waiting = self._waiting, []
            for at, (request, token) in enumerate(waiting):
                if len(self._entries) > ENTRIES_MAX:
                    self._waiting = waiting[at:]
                    break
                try:
                    result: object = self._serve(request, now)
                except BrokerError as error:
                    result = error
                if self._entries:
                    self._replies.append(Reply(token, result))
                else:
                    self._effects.append(Reply(token, result))
            self._send()

    def _serve(self, request: ConsumerHeartbeat, now: Now) -> ConsumerHeartbeatReply:
        """Serve one heartbeat. Raises GroupError, InvalidRequest: then it changed nothing."""
        self._check_alive()
        if request.epoch < JOINING:
            return self._leave(request, now)
        before = self._admit(request)
        self._subscribe(request, before)
        self._follow_topics(request, now)
        self._assign_if_due(now)
        old = self._state.current.get(request.member_id, NOTHING)
        new = self._reconcile(request)
        self._touch(request.member_id, now)
        if new.state is not MemberState.UNREVOKED:
            self._revoke_by.pop(request.member_id, None)
        elif new != old or request.member_id not in self._revoke_by:
            self._give_time(request.member_id, now)
        is_full = request.epoch == JOINING or (
            request.rebalance_timeout_ms != UNKNOWN
            and (request.topics is not None or request.pattern is not None)
            and request.owned is not None
        )
        is_news = request.epoch != old.epoch or _shape(old.assigned) != _shape(new.assigned)
        is_told = is_full or is_news
        return ConsumerHeartbeatReply(
            request.member_id, new.epoch, new.assigned if is_told else None
        )

    def check_commit(
        self,
        commit: Commit,
        now: Now,
        *,
        offsets: Sequence[OffsetToCommit] = (),
        is_transactional: bool = False,
    ) -> None:
        """Decide whether offsets may be committed. Raises GroupError, UnsupportedVersion.

        A member may be at an earlier epoch, as long as it was assigned the partitions by then and
        still is (KIP-1251). At its own epoch it may have given partitions up that it no longer
        wanted: those are their next owner's. What is on its way into the log counts, too: a member
        that is being removed must not write behind its successor's back.
        """
        self._check_alive()
        for state in (self.durable, self._state):
            if commit.generation <= NO_GENERATION and commit.member_id == NO_MEMBER:
                if not state.members or is_transactional:
                    continue
                raise UnknownMember("only members may commit while the group has members")
            current = state.current.get(commit.member_id)
            if current is None:
                raise UnknownMember(commit.member_id)
            if not commit.has_member_epoch:
                raise UnsupportedVersion(
                    "a member of a group with the consumer protocol commits with OffsetCommit 9"
                    " or later"
                )
            if commit.generation != current.epoch:
                self._check_assigned(commit, current, offsets)
            elif any(
                state.is_newly_held(one.topic_id, one.partition, commit.generation)
                for one in offsets
            ):
                raise StaleMemberEpoch("another member has been assigned the partition since")

    def _check_assigned(
        self, commit: Commit, current: Current, offsets: Sequence[OffsetToCommit]
    ) -> None:
        if 0 <= commit.generation < current.epoch:
            for one in offsets:
                since = current.held_since(one.topic_id, one.partition)
                if since is None or since > commit.generation:
                    break
            else:
                return
        raise StaleMemberEpoch(f"member {commit.member_id} is at epoch {current.epoch}")

    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Decide whether a member may ask for offsets. Raises UnknownMember, StaleMemberEpoch.

        One that did not hear of its newest epoch is served: it would begin at the end instead.
        """
        current = self.durable.current.get(member_id)
        if current is None:
            raise UnknownMember(member_id)
        if epoch not in (current.epoch, current.previous_epoch):
            raise StaleMemberEpoch(f"member {member_id} is at epoch {current.epoch}")

    # --- who comes and goes ---------------------------------------------------------------------

    def _admit(self, request: ConsumerHeartbeat) -> Subscriber | None:
        """Return the member that a heartbeat is of, None for a new one; a static member takes the
        place of the one that went before. Raises GroupError."""
        state = self._state
        known = state.members.get(request.member_id)
        if request.instance_id is not None:
            former = self._of_instance(request.instance_id)
            if former is not None and former != request.member_id:
                if request.epoch != JOINING:
                    raise FencedInstanceId(request.instance_id)
                if state.current.get(former, NOTHING).epoch != LEAVING_STATIC:
                    raise UnreleasedInstanceId(
                        f"member {former} still has the instance id {request.instance_id}"
                    )
                return self._succeed(former, request.member_id)
        if known is not None:
            self._check_epoch(request, state.current.get(request.member_id, NOTHING))
            return known
        if request.epoch != JOINING:
            raise UnknownMember(request.member_id)
        if len(state.members) >= self._size_max:
            raise GroupMaxSizeReached(self.group_id)
        return None

    def _check_epoch(self, request: ConsumerHeartbeat, current: Current) -> None:
        if request.epoch in (JOINING, current.epoch):
            return
        is_answer_lost = (
            request.epoch == current.previous_epoch
            and request.epoch < current.epoch
            and request.owned is not None
            and within(request.owned, current.assigned)
        )
        if not is_answer_lost:
            raise FencedMemberEpoch(
                f"member {request.member_id} is at epoch {current.epoch}, not {request.epoch}:"
                " it has to give its partitions up and join again"
            )

    def _of_instance(self, instance_id: str) -> str | None:
        return next(
            (
                member_id
                for member_id, one in self._state.members.items()
                if one.instance_id == instance_id
            ),
            None,
        )

    def _succeed(self, former: str, member_id: str) -> Subscriber:
        """A static member has come back with a new id: it gets what it had."""
        state = self._state
        subscriber = state.members[former]
        target = state.targets.get(former, {})
        current = state.current.get(former, NOTHING)
        self._tombstones(former)
        self._change(Part.MEMBER, member_id, subscriber)
        self._change(Part.TARGET, member_id, target)
        back = current._replace(epoch=JOINING, previous_epoch=JOINING, state=MemberState.STABLE)
        self._change(Part.CURRENT, member_id, back)
        return subscriber

    def _leave(self, request: ConsumerHeartbeat, now: Now) -> ConsumerHeartbeatReply:
        """Remove a member; a static one that means to come back keeps its partitions."""
        known = self._state.members.get(request.member_id)
        if request.instance_id is not None:
            former = self._of_instance(request.instance_id)
            if former is not None and former != request.member_id:
                raise FencedInstanceId(request.instance_id)
        if known is None:
            raise UnknownMember(request.member_id)
        if request.epoch == LEAVING_STATIC:
            current = self._state.current.get(request.member_id, NOTHING)
            away = current._replace(epoch=LEAVING_STATIC, state=MemberState.STABLE, revoking={})
            self._change(Part.CURRENT, request.member_id, away)
            self._revoke_by.pop(request.member_id, None)
        else:
            self._remove((request.member_id,), "left", now)
        return ConsumerHeartbeatReply(request.member_id, request.epoch, None)

    def _remove(self, member_ids: Sequence[str], reason: str, now: Now) -> None:
        for member_id in member_ids:
            self._tombstones(member_id)
        self._drop_patterns()
        self._raise_epoch()
        self._event("group.members_gone", f"{', '.join(member_ids)}: {reason}")
        if self._state.members:
            self._assign_if_due(now)

    def _tombstones(self, member_id: str) -> None:
        for part in (Part.CURRENT, Part.TARGET, Part.MEMBER):
            self._change(part, member_id, None)

    # --- what it wants --------------------------------------------------------------------------

    def _subscribe(self, request: ConsumerHeartbeat, before: Subscriber | None) -> None:
        """Keep what the member wants; the epoch grows if that is other topics."""
        old = before or Subscriber(None, None, "", "", (), None, 0, None)
        new = Subscriber(
            instance_id=request.instance_id if request.instance_id is not None else old.instance_id,
            rack_id=request.rack_id if request.rack_id is not None else old.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=old.topics if request.topics is None else tuple(sorted(set(request.topics))),
            pattern=old.pattern if request.pattern is None else request.pattern or None,
            rebalance_timeout_ms=(
                old.rebalance_timeout_ms
                if request.rebalance_timeout_ms == UNKNOWN
                else request.rebalance_timeout_ms
            ),
            assignor=request.assignor if request.assignor is not None else old.assignor,
        )
        self._change(Part.MEMBER, request.member_id, new)
        if before is None or (old.topics, old.pattern) != (new.topics, new.pattern):
            self._drop_patterns()
            self._is_hash_due = True
            self._raise_epoch()
            if before is None:
                self._event("group.member_joined", request.member_id)

    def _follow_topics(self, request: ConsumerHeartbeat, now: Now) -> None:
        """Match the member's pattern anew if that is due; the epoch grows if the topics that the
        group subscribes to are not what they were."""
        subscriber = self._state.members[request.member_id]
        if subscriber.pattern is not None and self._is_match_due(subscriber.pattern, now):
            self._match(subscriber.pattern, request.sees, now)
        if self._topics_version == self._topics.version and not self._is_hash_due:
            return
        self._topics_version, self._is_hash_due = self._topics.version, False
        topics_hash = self._hash_topics()
        if topics_hash != self._state.group.topics_hash:
            group = self._state.group
            after = group._replace(epoch=self._next_epoch(), topics_hash=topics_hash)
            self._change(Part.GROUP, "", after)

    def _is_match_due(self, pattern: str, now: Now) -> bool:
        if pattern not in self._state.matches:
            return True
        version, at_s = self._matched.get(pattern, (None, float("-inf")))
        age_s = now.s - at_s
        is_changed = version != self._topics.version and age_s >= PATTERN_PAUSE_S
        return is_changed or age_s >= PATTERN_LIFE_S

    def _match(self, pattern: str, sees: Callable[[str], bool], now: Now) -> None:
        self._matched[pattern] = (self._topics.version, now.s)
        compiled = LinearPattern(pattern)
        found = sorted(name for name in self._topics.names() if compiled.matches(name))
        topics = tuple(name for name in found if sees(name))
        known = self._state.matches.get(pattern)
        if known is None or known.topics != topics:
            self._change(Part.PATTERN, pattern, Matches(topics, now.ms))
            self._is_hash_due = True

    def _drop_patterns(self) -> None:
        """Forget what patterns match that no member has any more."""
        wanted = {one.pattern for one in self._state.members.values()}
        for pattern in [one for one in self._state.matches if one not in wanted]:
            self._change(Part.PATTERN, pattern, None)
            self._matched.pop(pattern, None)

    def _hash_topics(self) -> int:
        """Return a number, not 0, that tells what the subscribed topics look like."""
        shapes = []
        for name in sorted(self.subscribed_topics()):
            topic = self._topics.get(name)
            if topic is not None:
                shapes.append(f"{name} {topic.topic_id} {topic.partition_count}")
        digest = hashlib.blake2b("\n".join(shapes).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True) or 1

    # --- who gets what ----------------------------------------------------------------------------

    def _raise_epoch(self) -> None:
        self._change(Part.GROUP, "", self._state.group._replace(epoch=self._next_epoch()))

    def _next_epoch(self) -> int:
        """Return the epoch of a change: one is enough for several that nobody has heard of yet, and
        for which no target was made."""
        epoch = self._state.group.epoch
        is_heard_of = epoch in (self.durable.group.epoch, self._state.target_epoch.epoch)
        return epoch + 1 if is_heard_of else epoch

    def _assign_if_due(self, now: Now) -> None:
        """Make a new target assignment for a newer epoch, unless the last one is too young."""
        state = self._state
        if state.target_epoch.epoch == state.group.epoch:
            self._assign_at_s = None
            return
        age_ms = now.ms - state.target_epoch.made_ms
        left_ms = self._assignment_interval_ms - max(age_ms, 0)
        is_first = not state.target_epoch.epoch or not self.durable.members
        if not is_first and left_ms > 0:
            self._assign_at_s = now.s + left_ms / 1000
            self._wake_by(self._assign_at_s)
            return
        self._assign_at_s = None
        self._assign(now)

    def _assign(self, now: Now) -> None:
        """Divide the partitions among the members."""
        state = self._state
        shapes: dict[UUID, int] = {}
        wishes: dict[str, Wish] = {}
        for member_id, one in state.members.items():
            ids = []
            for topic in self._topics_of(one):
                shapes[topic.topic_id] = topic.partition_count
                ids.append(topic.topic_id)
            target = state.targets.get(member_id, {})
            wishes[member_id] = Wish(frozenset(ids), target, one.instance_id)
        targets = ASSIGNORS[self.assignor](wishes, shapes)
        for member_id, target in targets.items():
            if member_id not in state.targets or state.targets[member_id] != target:
                self._change(Part.TARGET, member_id, target)
        self._change(Part.TARGET_EPOCH, "", TargetEpoch(state.group.epoch, now.ms))
        self._event(REBALANCING, f"epoch {state.group.epoch}")

    def _reconcile(self, request: ConsumerHeartbeat) -> Current:
        state = self._state
        member_id = request.member_id
        current = state.current.get(member_id, NOTHING)
        subscribed = frozenset(
            topic.topic_id for topic in self._topics_of(state.members[member_id])
        )
        if member_id not in state.current:
            current = current._replace(state=MemberState.UNRELEASED)  # has no epoch yet
        new = reconcile(
            member_id,
            current,
            state.targets.get(member_id, {}),
            state.target_epoch.epoch,
            owned=request.owned,
            owner=state.owner,
            subscribed=subscribed,
        )
        self._change(Part.CURRENT, member_id, new)
        return new

    def _topics_of(self, subscriber: Subscriber) -> list[Topic]:
        names = set(subscriber.topics)
        if subscriber.pattern is not None and subscriber.pattern in self._state.matches:
            names.update(self._state.matches[subscriber.pattern].topics)
        found = (self._topics.get(name) for name in names)
        return [topic for topic in found if topic is not None]

    @property
    def assignor(self) -> str:
        """The one that most members ask for; of those with as many the first that is configured."""
        votes = dict.fromkeys(self._config.consumer_assignors, 0)
        for one in self._state.members.values():
            if one.assignor in votes:
                votes[one.assignor] += 1
        return max(votes, key=votes.__getitem__)

    # --- time -------------------------------------------------------------------------------------

    def hear(self, member_id: str, now: Now) -> None:
        """A member sent a heartbeat: it is there, though it may be in no state to be answered."""
        if member_id in self._sessions:
            self._touch(member_id, now)

    def next_deadline(self) -> float | None:
        """Return when `on_deadline` wants to be called; perhaps early, never late."""
        return self._wake_s if self._ticket is None else None

    def on_deadline(self, now: Now) -> GroupEffects:
        """Do what is due."""
        if self._ticket is not None:
            return ()  # put off until the batch is durable
        lost = [member_id for member_id, at_s in self._sessions.items() if at_s <= now.s]
        slow = [member_id for member_id, at_s in self._revoke_by.items() if at_s <= now.s]
        if lost:
            self._remove(lost, "sessions expired", now)
        if slow := [member_id for member_id in slow if member_id in self._state.members]:
            self._remove(slow, "did not give up partitions in time", now)
        if not self._state.members:
            self._assign_at_s = None
        elif self._assign_at_s is not None and self._assign_at_s <= now.s:
            self._assign_if_due(now)
        deadlines = [*self._sessions.values(), *self._revoke_by.values()]
        if self._assign_at_s is not None:
            deadlines.append(self._assign_at_s)
        self._wake_s = min(deadlines, default=None)
        self._send()
        return self._take()

    def _touch(self, member_id: str, now: Now) -> None:
        self._sessions[member_id] = now.s + self._session_timeout_ms / 1000
        self._wake_by(self._sessions[member_id])

    def _give_time(self, member_id: str, now: Now) -> None:
        timeout_ms = self._state.members[member_id].rebalance_timeout_ms
        self._revoke_by[member_id] = now.s + timeout_ms / 1000
        self._wake_by(self._revoke_by[member_id])

    def _forget_times(self, member_id: str) -> None:
        self._sessions.pop(member_id, None)
        self._revoke_by.pop(member_id, None)

    def _wake_by(self, at_s: float) -> None:
        if self._wake_s is None or at_s < self._wake_s:
            self._wake_s = at_s

    # --- inspection ---------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        """Where the group stands, as tools name it."""
        if self._is_dead:
            return GroupState.DEAD
        state = self.durable
        if not state.members:
            return GroupState.EMPTY
        if state.group.epoch > state.target_epoch.epoch:
            return GroupState.ASSIGNING
        target_epoch = state.target_epoch.epoch
        for current in state.current.values():
            if current.state is not MemberState.STABLE or current.epoch != target_epoch:
                return GroupState.RECONCILING
        return GroupState.STABLE

    @property
    def stored(self) -> ConsumerGroupState | None:
        """What the log holds of the group, None if nothing."""
        return self.durable or None

    def settled(self) -> list[ConsumerGroupEntry]:
        """Return what is durable and not about to be replaced: what a copy of the log holds."""
        sent = {(entry.part, entry.name) for entry in self._sent}
        entries = self.durable.entries(self.group_id)
        return [entry for entry in entries if (entry.part, entry.name) not in sent]

    @property
    def stores(self) -> int:
        """How many batches are on their way into the log."""
        return int(self._ticket is not None)

    @property
    def members(self) -> Mapping[str, Subscriber]:
        """The members, by id."""
        return self.durable.members

    @property
    def kept_bytes(self) -> int:
        """About how much the members gave us to keep, and were assigned."""
        return sum(map(self.kept_of, self.durable.members))

    def kept_of(self, member_id: str) -> int:
        """The same for one member, 0 for a stranger."""
        one = self.durable.members.get(member_id)
        if one is None:
            return 0
        names = sum(map(len, one.topics)) + len(one.pattern or "") + len(one.client_id)
        partitions = sum(map(len, self.durable.targets.get(member_id, {}).values()))
        return names + len(member_id) + 8 * partitions

    def is_unused(self) -> bool:
        """Whether nobody is in the group or about to join, and nothing on its way."""
        return not self.durable.members and self._ticket is None and not self._waiting

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members want."""
        names: set[str] = set()
        for one in self._state.members.values():
            names.update(one.topics)
        for matches in self._state.matches.values():
            names.update(matches.topics)
        return frozenset(names)

    def describe(self) -> GroupDescription:
        """Return what tools show of any group: assignments in the form of the classic protocol."""
        state = self.durable
        members = []
        for member_id, one in state.members.items():
            assigned = state.current.get(member_id, NOTHING).assigned
            named = {
                name: sorted(held)
                for topic_id, held in assigned.items()
                if (name := self._topics.name(topic_id)) is not None
            }
            members.append(
                MemberDescription(
                    member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    b"",
                    assignment_bytes(named),
                )
            )
        return GroupDescription(
            self.group_id,
            self.state,
            self.protocol_type,
            self.assignor,
            tuple(members),
            self.group_type,
        )

    def describe_members(self) -> ConsumerGroupDescription:
        """Return what tools show of groups of this protocol."""
        state = self.durable
        members = tuple(
            ConsumerMemberDescription(
                member_id,
                one,
                state.current.get(member_id, NOTHING),
                state.targets.get(member_id, {}),
            )
            for member_id, one in state.members.items()
        )
        return ConsumerGroupDescription(
            self.group_id,
            self.state,
            state.group.epoch,
            state.target_epoch.epoch,
            self.assignor,
            members,
        )

    def check(self) -> None:
        """Assert the invariants of state, deadlines and parked requests."""
        self.durable.check()
        if self._draft is not None:
            self._draft.check()
        assert (self._draft is not None) == (self._ticket is not None)
        assert not self._entries
        assert not self._replies or self._ticket is not None
        assert not self._waiting or self._ticket is not None
        assert not self._effects
        for member_id in self.durable.members:
            assert member_id in self._sessions

    # --- settings -----------------------------------------------------------------------------

    @property
    def _session_timeout_ms(self) -> int:
        return self._config.times(self.group_id).session_timeout_ms

    @property
    def _size_max(self) -> int:
        return self._config.consumer_size_max

    @property
    def _assignment_interval_ms(self) -> int:
        return self._config.times(self.group_id).assignment_interval_ms

    # --- small things -------------------------------------------------------------------------

    @property
    def _state(self) -> ConsumerGroupState:
        return self.durable if self._draft is None else self._draft

    def _check_alive(self) -> None:
        if self._is_dead:
            raise CoordinatorNotAvailable(f"group {self.group_id} is being deleted")

    def _change(self, part: Part, name: str, value: PartValue | None) -> None:
        """Change the copy, and note what is to be written."""
        if self._state.get(part, name) == value:
            return
        if self._draft is None:
            self._draft = self.durable.copy()
        entry = ConsumerGroupEntry(self.group_id, part, name, value)
        self._draft.apply(entry)
        self._entries.append(entry)

    def _send(self) -> None:
        """Write what has been prepared."""
        if not self._entries:
            return
        self._ticket = self._new_ticket()
        self._sent, self._entries = tuple(self._entries), []
        self._effects.append(StoreEntries(self._ticket, self._sent))

    def _event(self, name: str, reason: str) -> None:
        state = self._state
        event = Event(name, self.group_id, state.group.epoch, len(state.members), reason)
        self._effects.append(event)

    def _take(self) -> GroupEffects:
        effects, self._effects = self._effects, []
        return effects


def _shape(held: Held) -> dict[UUID, frozenset[int]]:
    return {topic_id: frozenset(indexes) for topic_id, indexes in held.items()}
