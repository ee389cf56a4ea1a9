"""What each request does to a group: the rules of the classic group protocol.

JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the right to commit offsets are decided here. The
states themselves, and time, are in `group_machine`.

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

Sources: Kafka's GroupMetadataManager (classicGroup*), KIP-345 (static members), KIP-394 (member
id required).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.core.coordinator_types import Now, Token
from broker.errors import (
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
from broker.groups.core.group_machine import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    GroupMachine,
)
from broker.groups.core.group_members import Member
from broker.groups.core.group_stores import AssignmentStore, StaticStore
from broker.groups.core.group_types import (
    NO_GENERATION,
    NO_MEMBER,
    Commit,
    GroupDescription,
    GroupEffects,
    Heartbeat,
    Join,
    Leaving,
    MemberDescription,
    Sync,
    SyncReply,
)


class Group(GroupMachine):
    """One group, with the requests that drive it."""

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

    def check_commit(self, commit: Commit, now: Now, *, is_transactional: bool = False) -> None:
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
