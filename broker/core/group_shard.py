"""All groups of one coordinator partition: routing, the offset table, deadlines, replay.

This file is the only home of what spans a group and its offsets: creating and forgetting groups,
committing, deleting, expiring, the order of deadlines over many groups, and the copy of live
state that bounds the log.

The flow of everything durable: a request method returns `Append(ticket, records)`; the shell
appends the records as one batch; when they are durable it calls `replay` for each record and
then `on_stored(ticket)`, which releases the reply. Durable state therefore equals, at any time,
the fold of `replay` over the log up to there, and that is all a fail-over needs. If the log
refuses an append, `on_store_failed(ticket)` undoes the intent; if its outcome is unknown, the
whole shard is given up (`unload`) and loaded again from the log.

Snapshots. The log is trimmed at an offset S after every live key was written again behind S.
Keys with records in flight are left out of the copy: what is in flight lies behind S already
and is newer. Copies of different groups may be appended at different times with other records
between them, since each is the newest durable value at its moment.

Source: Kafka's GroupCoordinatorShard, OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from broker.core.consumer_protocol import PROTOCOL_TYPE
from broker.core.group import Group
from broker.core.group_offsets import GroupOffsets, TopicPartition, Usage
from broker.core.group_types import (
    NO_GENERATION,
    NO_MEMBER,
    Append,
    Commit,
    CommittedOffset,
    GroupConfig,
    GroupDescription,
    GroupEffects,
    GroupState,
    Heartbeat,
    Join,
    Leaving,
    LogRecord,
    Now,
    OffsetToCommit,
    Reply,
    ShardEffect,
    ShardEffects,
    Store,
    Sync,
    Ticket,
    Token,
)
from broker.core.offset_changes import OffsetChanges, Outcomes
from broker.core.offset_records import (
    GroupEntry,
    OffsetEntry,
    decode,
    fits,
    group_record,
    offset_record,
)
from broker.core.wakes import Wakes
from broker.errors import (
    BrokerError,
    GroupError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    UnknownMember,
)

__all__ = ["GroupShard", "Outcomes"]


class GroupShard:
    """The groups of one partition of the internal topic."""

    def __init__(self, config: GroupConfig, new_member_id: Callable[[str], str]) -> None:
        """Start empty; feed the log to `replay`, then call `loaded`."""
        self._config = config
        self._new_member_id = new_member_id
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetChanges(self._new_ticket)
        self._stores: dict[Ticket, str] = {}  # whose metadata is on its way into the log
        self._last_ticket = 0
        self._wakes = Wakes()
        self._sweep_s: float | None = None

    # --- the log ------------------------------------------------------------------------------

    def replay(self, record: LogRecord) -> None:
        """Apply a durable record. Raises CorruptCoordinatorRecord."""
        entry = decode(record.key, record.value)
        if isinstance(entry, OffsetEntry):
            self._offsets.replay(entry)
        elif isinstance(entry, GroupEntry):
            self._group_of(entry.group_id).replay(entry.metadata)

    def loaded(self, now: Now) -> ShardEffects:
        """Go live after the log was replayed to its end."""
        effects: list[ShardEffect] = []
        for group_id in self._offsets:
            self._group_of(group_id)
        for group_id, group in list(self._groups.items()):
            effects += self._pass_on(group_id, group.restore(now))
        self._sweep_s = now.s + self._config.offsets_check_interval_ms / 1000
        return effects

    def on_stored(self, ticket: Ticket, now: Now) -> ShardEffects:
        """Go on after the records of an Append were replayed."""
        group_id = self._stores.pop(ticket, None)
        if group_id is not None:
            return self._pass_on(group_id, self._groups[group_id].on_stored(ticket, now))
        change = self._offsets.settle(ticket)
        for dead in change.dead:
            self._forget(dead)
        self._note_all(change.keys)
        return change.replies()

    def on_store_failed(self, ticket: Ticket, error: BrokerError, now: Now) -> ShardEffects:
        """Go on after the log refused an Append: nothing of it is durable."""
        group_id = self._stores.pop(ticket, None)
        if group_id is not None:
            effects = self._groups[group_id].on_store_failed(ticket, error, now)
            return self._pass_on(group_id, effects)
        change = self._offsets.settle(ticket)
        for dead in change.dead:
            self._groups[dead].revive(now)
        self._note_all(change.keys)
        return change.replies(error)

    def unload(self, error: BrokerError) -> ShardEffects:
        """Answer everything that waits: this broker no longer coordinates these groups."""
        effects: list[ShardEffect] = []
        for group_id, group in list(self._groups.items()):
            effects += self._pass_on(group_id, group.unload(error))
        effects += self._offsets.give_up(error)
        self._stores.clear()
        return effects

    # --- membership ---------------------------------------------------------------------------

    def join(self, request: Join, token: Token, now: Now) -> ShardEffects:
        """Take a JoinGroup. Raises GroupError, InvalidRequest."""
        _check_texts(request)
        if request.member_id != NO_MEMBER and request.group_id not in self._groups:
            raise UnknownMember(request.member_id)
        group = self._group_of(request.group_id)
        try:
            effects = group.join(request, token, now)
        except GroupError:
            self._note(request.group_id)
            raise
        return self._pass_on(request.group_id, effects)

    def sync(self, request: Sync, token: Token, now: Now) -> ShardEffects:
        """Take a SyncGroup. Raises GroupError."""
        group = self._member_group(request.group_id, request.member_id)
        return self._pass_on(request.group_id, group.sync(request, token, now))

    def heartbeat(self, request: Heartbeat, now: Now) -> GroupError | None:
        """Renew a session; see `Group.heartbeat`. Raises GroupError."""
        group = self._member_group(request.group_id, request.member_id)
        outcome = group.heartbeat(request, now)
        self._note(request.group_id)
        return outcome

    def leave(
        self, group_id: str, leaving: Sequence[Leaving], now: Now
    ) -> tuple[Outcomes, ShardEffects]:
        """Remove members. Returns an outcome for each. Raises GroupError."""
        group = self._groups.get(group_id)
        if group is None:
            return tuple(UnknownMember(one.member_id) for one in leaving), ()
        outcomes, effects = group.leave(leaving, now)
        return outcomes, self._pass_on(group_id, effects)

    # --- offsets ------------------------------------------------------------------------------

    def commit(
        self,
        commit: Commit,
        offsets: Sequence[OffsetToCommit],
        token: Token,
        now: Now,
        *,
        retention_ms: int = -1,
    ) -> ShardEffects:
        """Commit offsets; the reply is `Outcomes`. Raises GroupError.

        `retention_ms` is what an old client asks for itself, -1 for the broker's rules.
        """
        group = self._groups.get(commit.group_id)
        if group is not None:
            group.check_commit(commit, now)
            self._note(commit.group_id)
        elif commit.generation > NO_GENERATION:
            raise GroupIdNotFound(commit.group_id)
        elif not fits(commit.group_id):
            raise InvalidGroupId("the group id is too long")
        expire_ms = now.ms + retention_ms if retention_ms >= 0 else -1
        limit = self._config.offset_metadata_bytes_max
        outcomes: list[BrokerError | None] = []
        keys: list[TopicPartition] = []
        records: list[LogRecord] = []
        for one in offsets:
            if len(one.metadata.encode()) > limit:
                outcomes.append(OffsetMetadataTooLarge(f"{one.topic}-{one.partition}"))
                continue
            outcomes.append(None)
            keys.append(TopicPartition(one.topic, one.partition))
            committed = CommittedOffset(
                one.offset, one.leader_epoch, one.metadata, now.ms, expire_ms
            )
            records.append(offset_record(commit.group_id, one.topic, one.partition, committed))
        if not records:
            return (Reply(token, tuple(outcomes)),)
        self._group_of(commit.group_id)
        return self._offsets.write({commit.group_id: keys}, records, token, tuple(outcomes))

    def committed(self, group_id: str) -> GroupOffsets:
        """Return the durable offsets of a group; empty for one that does not exist."""
        return self._offsets.of(group_id)

    def delete_offsets(
        self, group_id: str, keys: Sequence[TopicPartition], token: Token
    ) -> ShardEffects:
        """Remove offsets; the reply is `Outcomes`. Raises GroupError."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFound(group_id)
        busy: frozenset[str] | None = frozenset()
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != PROTOCOL_TYPE:
                raise NonEmptyGroup(group_id)
            busy = group.subscribed_topics()
        outcomes = tuple(
            GroupSubscribedToTopic(key.topic) if busy is None or key.topic in busy else None
            for key in keys
        )
        known = frozenset(self.committed(group_id).keys())
        gone = [
            key for key, error in zip(keys, outcomes, strict=True) if error is None and key in known
        ]
        return self._offsets.remove({group_id: gone}, token, outcomes)

    def delete_topic(self, topic: str, *, before_ms: int | None = None) -> ShardEffects:
        """Remove a topic's offsets: all, or with `before_ms` those committed earlier."""
        gone: dict[str, list[TopicPartition]] = {}
        for group_id in self._offsets:
            offsets = self.committed(group_id)
            keys = offsets.keys(topic)
            if before_ms is not None:
                keys = [key for key in keys if offsets.is_older(key, before_ms)]
            if keys:
                gone[group_id] = keys
        return self._offsets.remove(gone, None, ())

    # --- groups -------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """Describe a group, None if there is no such group."""
        group = self._groups.get(group_id)
        return None if group is None else group.describe()

    def descriptions(self) -> list[GroupDescription]:
        """Describe all groups."""
        return [group.describe() for group in self._groups.values()]

    def state_counts(self) -> dict[GroupState, int]:
        """Count groups by state, for metrics."""
        counts = dict.fromkeys(GroupState, 0)
        for group in self._groups.values():
            counts[group.state] += 1
        return counts

    def delete_groups(self, group_ids: Sequence[str], token: Token, now: Now) -> ShardEffects:
        """Delete groups without members; the reply is `Outcomes`."""
        outcomes: list[BrokerError | None] = []
        dead: list[str] = []
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is None or group.state is GroupState.DEAD:
                outcomes.append(GroupIdNotFound(group_id))
            elif group.state is not GroupState.EMPTY:
                outcomes.append(NonEmptyGroup(group_id))
            else:
                group.mark_dead(now)
                outcomes.append(None)
                dead.append(group_id)
        gone = {group_id: self.committed(group_id).keys() for group_id in dead}
        return self._offsets.remove(gone, token, tuple(outcomes), dead=tuple(dead))

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `on_deadline` wants to be called; perhaps early, never late."""
        deadlines = (self._wakes.first(), self._sweep_s)
        return min((at_s for at_s in deadlines if at_s is not None), default=None)

    def on_deadline(self, now: Now) -> ShardEffects:
        """Do what is due in all groups."""
        effects: list[ShardEffect] = []
        while (group_id := self._wakes.pop_due(now.s)) is not None:
            effects += self._pass_on(group_id, self._groups[group_id].on_deadline(now))
        if self._sweep_s is not None and self._sweep_s <= now.s:
            self._sweep_s = now.s + self._config.offsets_check_interval_ms / 1000
            effects += self._sweep(now)
        return effects

    # --- the copy that bounds the log ---------------------------------------------------------

    def group_ids(self) -> list[str]:
        """Return the ids of all groups, and of all that have offsets."""
        return list(dict.fromkeys((*self._groups, *self._offsets)))

    def snapshot(self, group_id: str) -> list[LogRecord]:
        """Return the durable state of a group as records, without what is in flight."""
        group = self._groups.get(group_id)
        if group is not None and group.state is GroupState.DEAD:
            return []
        records = []
        if group is not None and group.stored is not None and not group.is_storing():
            records.append(group_record(group_id, group.stored))
        offsets = self.committed(group_id)
        records += (
            offset_record(group_id, key.topic, key.partition, committed)
            for key, committed in offsets
            if not offsets.is_in_flight(key)
        )
        return records

    def check(self) -> None:
        """Assert the invariants of all groups and of the deadline order."""
        for group in self._groups.values():
            group.check()
        self._wakes.check({name: group.next_deadline() for name, group in self._groups.items()})

    # --- inside -------------------------------------------------------------------------------

    def _group_of(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(
                group_id,
                self._config,
                new_member_id=self._new_member_id,
                new_ticket=self._new_ticket,
            )
        return group

    def _member_group(self, group_id: str, member_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMember(member_id)
        return group

    def _new_ticket(self) -> Ticket:
        self._last_ticket += 1
        return Ticket(self._last_ticket)

    def _pass_on(self, group_id: str, effects: GroupEffects) -> ShardEffects:
        """Turn a group's effects into the shard's, and keep its deadline in order."""
        passed: list[ShardEffect] = []
        for effect in effects:
            if isinstance(effect, Store):
                self._stores[effect.ticket] = group_id
                record = group_record(group_id, effect.metadata)
                passed.append(Append(effect.ticket, (record,)))
            else:
                passed.append(effect)
        self._note(group_id)
        return passed

    def _note(self, group_id: str) -> None:
        """Forget a group that holds nothing, or make sure that it is woken in time."""
        group = self._groups[group_id]
        if group.forgettable() and not self.committed(group_id):
            self._forget(group_id)
        else:
            self._wakes.note(group_id, group.next_deadline())

    def _note_all(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            if group_id in self._groups:
                self._note(group_id)

    def _forget(self, group_id: str) -> None:
        del self._groups[group_id]
        self._wakes.forget(group_id)

    def _sweep(self, now: Now) -> ShardEffects:
        """Remove expired offsets, and groups that have nothing left."""
        keys: dict[str, list[TopicPartition]] = {}
        dead: list[str] = []
        for group_id, group in self._groups.items():
            if group.state is GroupState.DEAD:
                continue
            offsets = self.committed(group_id)
            usage = Usage(
                group.state, group.state_since_ms, group.protocol_type, group.subscribed_topics()
            )
            gone = offsets.expired(usage, now.ms, self._config.offsets_retention_ms)
            if gone:
                keys[group_id] = gone
            unused = group.state is GroupState.EMPTY and not group.is_busy()
            if unused and len(gone) == len(offsets.keys()):
                group.mark_dead(now)
                dead.append(group_id)
        return self._offsets.remove(keys, None, (), dead=tuple(dead))


def _check_texts(request: Join) -> None:
    """Refuse what no record could hold; newer versions of JoinGroup know no such limit."""
    texts = (request.instance_id or "", request.client_id, request.protocol_type)
    if not fits(request.group_id):
        raise InvalidGroupId("the group id is too long")
    if not all(fits(text) for text in (*texts, *(name for name, _ in request.protocols))):
        raise InvalidRequest("a name is too long")
