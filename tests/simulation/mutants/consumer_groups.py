"""Planted defects of groups of the consumer protocol (KIP-848); see `table.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import FencedMemberEpoch
from broker.groups.core import consumer_group, reconciliation
from broker.groups.core.consumer_group import ConsumerGroup
from broker.groups.core.consumer_group_records import MemberState
from broker.groups.core.consumer_group_state import NOTHING, ConsumerGroupState
from broker.groups.core.consumer_heartbeat import JOINING, LEAVING

if TYPE_CHECKING:
    from collections.abc import Callable


def given_before_release(patch: Any) -> None:
    """A member gets its part of the target though others still have it (crabka#521)."""

    def take(member_id: str, current: Any, wanted: Any, epoch: int, kept: Any, owner: Any) -> Any:
        return original(member_id, current, wanted, epoch, kept, lambda topic_id, index: None)

    original = patch(reconciliation, "_take", take)


def silence_is_release(patch: Any) -> None:
    """A member that does not say what it owns counts as having given up what it has to."""

    def reconcile(*arguments: Any, owned: Any, **options: Any) -> Any:
        return original(*arguments, owned={} if owned is None else owned, **options)

    original = patch(consumer_group, "reconcile", reconcile)


def previous_epoch_is_fenced(patch: Any) -> None:
    """A member whose answer was lost is fenced (LOST-ANSWER)."""

    def check_epoch(self: ConsumerGroup, request: Any, current: Any) -> None:
        if request.epoch not in (JOINING, current.epoch):
            raise FencedMemberEpoch("it is at another epoch")

    patch(ConsumerGroup, "_check_epoch", check_epoch)


def previous_epoch_owns_anything(patch: Any) -> None:
    """A member at the epoch before is served, whatever it says that it owns."""
    patch(consumer_group, "within", lambda owned, assigned: True)


def time_to_give_up_runs_on(patch: Any) -> None:
    """The time to give partitions up is not stopped when that has happened."""

    def serve(self: ConsumerGroup, request: Any, now: Any) -> Any:
        until_s = self._revoke_by.get(request.member_id)
        reply = original(self, request, now)
        if until_s is not None and request.member_id not in self._revoke_by and request.epoch > 0:
            self._revoke_by[request.member_id] = until_s
        return reply

    original = patch(ConsumerGroup, "_serve", serve)


def time_to_give_up_runs_always(patch: Any) -> None:
    """It runs in every state, from the first heartbeat after each join on."""

    def serve(self: ConsumerGroup, request: Any, now: Any) -> Any:
        until_s = self._revoke_by.get(request.member_id)
        reply = original(self, request, now)
        if request.epoch > 0:
            if until_s is None:
                self._give_time(request.member_id, now)
            else:
                self._revoke_by[request.member_id] = until_s
        return reply

    original = patch(ConsumerGroup, "_serve", serve)


def next_revocation_has_no_time_of_its_own(patch: Any) -> None:
    """What is left of the time for one revocation is all there is for the next."""

    def give_time(self: ConsumerGroup, member_id: str, now: Any) -> None:
        if member_id not in self._revoke_by:
            original(self, member_id, now)

    original = patch(ConsumerGroup, "_give_time", give_time)


def stale_epoch_commits(patch: Any) -> None:
    """A member commits at any epoch that it had."""
    patch(ConsumerGroup, "_check_assigned", lambda self, commit, current, offsets: None)


def handed_on_is_committed(patch: Any) -> None:
    """A member commits at its own epoch what it gave up without a new one."""
    patch(ConsumerGroupState, "is_newly_held", lambda self, topic_id, index, epoch: False)


def earlier_epoch_never_commits(patch: Any) -> None:
    """A commit has to name the newest epoch, whoever has the partition (node-rdkafka#1146)."""

    def check_assigned(self: ConsumerGroup, commit: Any, current: Any, offsets: Any) -> None:
        original(self, commit, NOTHING, offsets)

    original = patch(ConsumerGroup, "_check_assigned", check_assigned)


def commits_see_the_durable_only(patch: Any) -> None:
    """Whether a member may commit is decided without what is on its way into the log."""

    def check_commit(self: ConsumerGroup, commit: Any, now: Any, **options: Any) -> None:
        draft, self._draft = self._draft, None
        try:
            original(self, commit, now, **options)
        finally:
            self._draft = draft

    original = patch(ConsumerGroup, "check_commit", check_commit)


def told_before_durable(patch: Any) -> None:
    """A heartbeat is answered before what it changed is in the log (ANSWER-LATE)."""

    def send(self: ConsumerGroup) -> None:
        original(self)
        self._effects += self._replies
        self._replies = []

    original = patch(ConsumerGroup, "_send", send)


def served_beside_a_batch(patch: Any) -> None:
    """Heartbeats are served by the durable state while a batch is on its way (ONE-BATCH)."""
    parked: dict[Any, tuple[Any, Any, Any]] = {}

    def heartbeat(self: ConsumerGroup, request: Any, token: Any, now: Any) -> Any:
        if self._ticket is not None:
            parked[self, self._ticket] = (self._draft, self._replies, self._sent)
            self._ticket = self._draft = None
            self._replies, self._sent = [], ()
        return beaten(self, request, token, now)

    def returned(original: Any) -> Any:
        def go_on(self: ConsumerGroup, ticket: Any, *arguments: Any) -> Any:
            if ticket == self._ticket:
                return original(self, ticket, *arguments)
            mine = (self._ticket, self._draft, self._replies, self._sent)
            self._ticket = ticket
            self._draft, self._replies, self._sent = parked.pop((self, ticket))
            effects = original(self, ticket, *arguments)
            self._ticket, self._draft, self._replies, self._sent = mine
            return effects

        return go_on

    beaten = patch(ConsumerGroup, "heartbeat", heartbeat)
    patch(ConsumerGroup, "on_stored", returned(ConsumerGroup.on_stored))
    patch(ConsumerGroup, "on_store_failed", returned(ConsumerGroup.on_store_failed))


def going_for_a_while_is_leaving(patch: Any) -> None:
    """A static member that goes for a while loses what it had."""

    def leave(self: ConsumerGroup, request: Any, now: Any) -> Any:
        return original(self, request._replace(epoch=LEAVING), now)

    original = patch(ConsumerGroup, "_leave", leave)


def patterns_outlive_members(patch: Any) -> None:
    """A pattern stays when the last member has gone that had it."""
    patch(ConsumerGroup, "_drop_patterns", lambda self: None)


def the_dead_get_a_part(patch: Any) -> None:
    """The target is made with members that are just being removed."""

    def assign(self: ConsumerGroup, now: Any) -> None:
        members = self._state.members
        dead = {one: self.durable.members[one] for one in self.durable.members.keys() - members}
        members.update(dead)
        original(self, now)
        for one in dead:
            del members[one]

    original = patch(ConsumerGroup, "_assign", assign)


def owners_forgotten_at_a_load(patch: Any) -> None:
    """A new coordinator takes every partition for free."""

    def restore(self: ConsumerGroup, now: Any) -> Any:
        self.durable._owners.clear()
        return original(self, now)

    original = patch(ConsumerGroup, "restore", restore)


def sessions_forgotten_at_a_load(patch: Any) -> None:
    """A new coordinator waits for ever for members that have died before."""

    def restore(self: ConsumerGroup, now: Any) -> Any:
        effects = original(self, now)
        self._sessions = dict.fromkeys(self._sessions, 1e12)
        return effects

    original = patch(ConsumerGroup, "restore", restore)


def session_of_the_first_heartbeat(patch: Any) -> None:
    """A session begins with the join, and is not renewed."""

    def touch(self: ConsumerGroup, member_id: str, now: Any) -> None:
        if member_id not in self._sessions:
            original(self, member_id, now)

    original = patch(ConsumerGroup, "_touch", touch)


def revoking_forgotten_at_a_load(patch: Any) -> None:
    """A new coordinator takes for given up what members had to give up."""

    def restore(self: ConsumerGroup, now: Any) -> Any:
        for member_id, current in list(self.durable.current.items()):
            if current.state is MemberState.UNREVOKED:
                self.durable._disown(member_id)
                self.durable.current[member_id] = current._replace(revoking={})
                self.durable._own(member_id)
        return original(self, now)

    original = patch(ConsumerGroup, "restore", restore)


def lost_answers_are_not_repeated(patch: Any) -> None:
    """A member is told its assignment only when that changes."""

    def serve(self: ConsumerGroup, request: Any, now: Any) -> Any:
        before = self._state.current.get(request.member_id, NOTHING).assigned
        reply = original(self, request, now)
        is_new = reply.assignment is not None and reply.assignment != before
        return reply if is_new else reply._replace(assignment=None)

    original = patch(ConsumerGroup, "_serve", serve)


def growth_is_not_seen(patch: Any) -> None:
    """Topics that grow or come change nothing."""
    patch(ConsumerGroup, "_hash_topics", lambda self: 1)


def copies_leave_the_busy_out(patch: Any) -> None:
    """A copy of the log has nothing of a group of which a batch is on its way."""

    def settled(self: ConsumerGroup) -> Any:
        return [] if self._sent else original(self)

    original = patch(ConsumerGroup, "settled", settled)


WORLD = "groups"
KINDS = {"previous-epoch-owns-anything": "hasty"}
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
