"""All groups of one coordinator partition: replay, membership requests, deadlines.

The groups themselves are in `group_table`; requests about offsets are in `offset_requests`, and
what can be asked without changing anything is `GroupView`.

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

from collections.abc import Callable, Sequence
from typing import Final

from broker.coordinator.core.coordinator_types import (
    CopiedRecord,
    CorruptCoordinatorRecord,
    LogItem,
    LogRecord,
    Now,
    Reply,
    Ticket,
    Token,
    TransactionalRecord,
)
from broker.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    GroupError,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    UnknownMember,
)
from broker.groups.core.consumer_group import ConsumerGroup, Topics
from broker.groups.core.consumer_group_records import ConsumerGroupEntry, ShareGroupEntry
from broker.groups.core.consumer_heartbeat import JOINING, ConsumerHeartbeat, check_heartbeat
from broker.groups.core.group import Group
from broker.groups.core.group_offsets import EPOCH_MAX, HeardMarker, Outcomes
from broker.groups.core.group_table import AnyGroup, GroupTable, GroupView
from broker.groups.core.group_types import (
    NO_MEMBER,
    GroupConfig,
    GroupState,
    Heartbeat,
    Join,
    Leaving,
    ShardEffect,
    ShardEffects,
    Sync,
)
from broker.groups.core.offset_records import GroupEntry, OffsetEntry, decode, fits
from broker.groups.core.offset_requests import OffsetRequests
from broker.groups.core.share_group import ShareGroup, check_share_heartbeat
from client.wire.kafka.batches.control_batch import Marker

__all__ = ["GroupShard", "Outcomes"]

_PASS_ON_S: Final = 1.0


class GroupShard:
    """The groups of one partition of the internal topic."""

    def __init__(
        self, config: GroupConfig, new_member_id: Callable[[str], str], topics: Topics
    ) -> None:
        """Start empty; feed the log to `replay`, then call `loaded`."""
        self._config = config
        self._table = GroupTable(config, topics, new_member_id)
        self._expire_s: float | None = None
        self._pass_on_s: float | None = None
        """When to see again what offsets of ended topics are left, because the log refused
        something."""
        self.offsets = OffsetRequests(self._table, config)
        self.view = GroupView(self._table)

    # --- the log ------------------------------------------------------------------------------

    def replay(self, item: LogItem | HeardMarker) -> None:
        """Apply something durable: a record, also of a transaction, or a marker.

        Raises CorruptCoordinatorRecord.
        """
        fold = self._table.offsets.fold
        match item:
            case LogRecord(key, value):
                entry = decode(key, value)
                if isinstance(entry, OffsetEntry):
                    fold.replay(entry)
                elif isinstance(entry, GroupEntry):
                    self._replay_classic(entry)
                elif isinstance(entry, ConsumerGroupEntry):
                    self._table.consumer(entry.group_id).replay(entry)
                elif isinstance(entry, ShareGroupEntry):
                    self._table.share(entry.entry.group_id).replay(entry.entry)
            case CopiedRecord(record):
                entry = decode(*record)
                if isinstance(entry, OffsetEntry):
                    fold.replay(entry, is_copy=True)
            case TransactionalRecord(record):
                entry = decode(*record)
                if not isinstance(entry, OffsetEntry):
                    raise CorruptCoordinatorRecord(
                        "a transaction holds records that are no offsets"
                    )
                fold.replay_pending(entry, item)
            case Marker():
                self._end_transaction(item, EPOCH_MAX)  # one in the log ends whatever is open
            case HeardMarker(marker, epoch_max):
                self._end_transaction(marker, epoch_max)

    def _replay_classic(self, entry: GroupEntry) -> None:
        is_consumer = isinstance(self._table.get(entry.group_id), ConsumerGroup)
        if entry.metadata is not None or not is_consumer:
            self._table.classic(entry.group_id).replay(entry.metadata)

    def end_transaction(self, heard: HeardMarker) -> ShardEffects:
        """Apply a marker that was written while this broker coordinates."""
        groups = self._end_transaction(heard.marker, heard.epoch_max)
        offsets = self._table.offsets
        return self.offsets.settled({group_id: offsets.keys(group_id) for group_id in groups})

    def _end_transaction(self, marker: Marker, epoch_max: int) -> Sequence[str]:
        """What a producer had pending is committed, or gone; return the groups it is about."""
        groups = self._table.offsets.fold.end_transaction(
            marker.producer_id, is_commit=marker.is_commit, epoch_max=epoch_max
        )
        self._table.note(groups)
        return groups

    def loaded(self, now: Now) -> ShardEffects:
        """Go live after the log was replayed to its end."""
        table = self._table
        table.offsets.fold.loaded()
        effects: list[ShardEffect] = []
        for group_id in table.offsets:
            table.get_or_create(group_id)
        for group in table:
            effects += table.shard_effects(group, group.restore(now))
        self._expire_s = now.s + self._config.offsets_check_interval_ms / 1000
        return effects

    def on_stored(self, ticket: Ticket, now: Now) -> ShardEffects:
        """Continue after the records of an Append were replayed."""
        table = self._table
        group = table.pop_store(ticket)
        if group is not None:
            return table.shard_effects(group, group.on_stored(ticket, now))
        change = table.offsets.settle(ticket)
        for dead in change.dead:
            table.forget(dead)
        table.note(change.keys)
        return (*change.replies(), *self.offsets.settled(change.keys))

    def on_store_failed(self, ticket: Ticket, error: BrokerError, now: Now) -> ShardEffects:
        """Continue after the log refused an Append: nothing of it is durable."""
        table = self._table
        group = table.pop_store(ticket)
        if group is not None:
            return table.shard_effects(group, group.on_store_failed(ticket, error, now))
        change = table.offsets.settle(ticket)
        for dead in change.dead:
            revived = table.get(dead)
            assert revived is not None
            revived.revive(now)
        table.note(change.keys)
        if self.offsets.has_ended:  # not at once: the log may refuse whatever comes now
            self._pass_on_s = now.s + _PASS_ON_S
        return change.replies(error)

    def unload(self, error: BrokerError) -> ShardEffects:
        """Answer everything that waits: this broker no longer coordinates these groups."""
        table = self._table
        effects: list[ShardEffect] = []
        for group in table:
            effects += table.shard_effects(group, group.unload(error))
        effects += table.offsets.give_up(error)
        table.drop_stores()
        return effects

    # --- membership ---------------------------------------------------------------------------

    def join(self, request: Join, token: Token, now: Now) -> ShardEffects:
        """Take a JoinGroup. Raises GroupError, InvalidRequest."""
        _check_texts(request)
        table = self._table
        group = table.get(request.group_id)
        if isinstance(group, ShareGroup):
            raise InconsistentGroupProtocol(f"{request.group_id} is a share group")
        if isinstance(group, ConsumerGroup):
            if group.state is not GroupState.EMPTY:
                raise InconsistentGroupProtocol(
                    f"the members of {request.group_id} use the consumer protocol"
                )
            return self._retire(group, token, now)
        if request.member_id != NO_MEMBER:
            table.of_member(request.group_id, request.member_id)
        group = table.classic(request.group_id)
        try:
            effects = group.join(request, token, now)
        except GroupError:
            table.note((request.group_id,))
            raise
        return table.shard_effects(group, effects)

    def sync(self, request: Sync, token: Token, now: Now) -> ShardEffects:
        """Take a SyncGroup. Raises GroupError."""
        group = self._table.of_member(request.group_id, request.member_id)
        return self._table.shard_effects(group, group.sync(request, token, now))

    def heartbeat(self, request: Heartbeat, now: Now) -> GroupError | None:
        """Renew a session; see `Group.heartbeat`. Raises GroupError."""
        group = self._table.of_member(request.group_id, request.member_id)
        outcome = group.heartbeat(request, now)
        self._table.note((request.group_id,))
        return outcome

    def heartbeat_consumer(
        self, request: ConsumerHeartbeat, token: Token, now: Now
    ) -> ShardEffects:
        """Take a heartbeat of the consumer protocol; the reply is `ConsumerHeartbeatReply`.

        Raises GroupError, InvalidRequest.
        """
        check_heartbeat(request, self._config.consumer_assignors)
        if not fits(request.group_id):
            raise InvalidGroupId("the group id is too long")
        texts = (request.member_id, request.instance_id, request.rack_id, request.client_id)
        if not all(fits(text or "") for text in texts):
            raise InvalidRequest("a name is too long")
        table = self._table
        group = table.get(request.group_id)
        if isinstance(group, ShareGroup):
            raise GroupIdNotFound(f"group {request.group_id} is a share group")
        if not isinstance(group, ConsumerGroup):
            if group is not None and group.state is not GroupState.EMPTY:
                raise GroupIdNotFound(
                    f"group {request.group_id} has members of the classic protocol: stop them, or"
                    " set group.protocol=classic here"
                )
            if request.epoch != JOINING:
                raise UnknownMember(request.member_id)
            if group is not None and (group.stored is not None or not group.is_unused()):
                return self._retire(group, token, now)
            group = table.consumer(request.group_id)
        return table.shard_effects(group, group.heartbeat(request, token, now))

    def hear(self, group_id: str, member_id: str, now: Now) -> None:
        """Renew the session of a member of the consumer protocol, whatever it is answered."""
        group = self._table.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.hear(member_id, now)

    def heartbeat_share(self, request: ConsumerHeartbeat, token: Token, now: Now) -> ShardEffects:
        """Take a heartbeat of a member of a share group; the reply is `ConsumerHeartbeatReply`.

        Raises GroupError, InvalidRequest.
        """
        check_share_heartbeat(request)
        texts = (request.rack_id, request.client_id)
        if not all(fits(text or "") for text in texts):
            raise InvalidRequest("a name is too long")
        table = self._table
        group = table.get(request.group_id)
        if not isinstance(group, ShareGroup):
            if group is not None:
                raise GroupIdNotFound(f"group {request.group_id} is not a share group")
            if request.epoch != JOINING:
                raise GroupIdNotFound(f"there is no share group {request.group_id}")
            group = table.share(request.group_id)
        return table.shard_effects(group, group.heartbeat(request, token, now))

    def _retire(self, group: AnyGroup, token: Token, now: Now) -> ShardEffects:
        """Somebody wants to join an empty group by the other protocol: what the log has of its
        members goes first, its offsets stay; the client tries again."""
        refusal = CoordinatorNotAvailable(f"group {group.group_id} changes its protocol")
        if not group.is_unused():
            return (Reply(token, refusal),)
        group.mark_dead(now)
        dead = (group.group_id,)
        return (*self._table.offsets.remove({}, None, (), dead=dead), Reply(token, refusal))

    def leave(
        self, group_id: str, leaving: Sequence[Leaving], now: Now
    ) -> tuple[Outcomes, ShardEffects]:
        """Remove members. Returns an outcome for each. Raises GroupError."""
        group = self._table.get(group_id)
        if not isinstance(group, Group):
            return tuple(UnknownMember(one.member_id) for one in leaving), ()
        outcomes, effects = group.leave(leaving, now)
        return outcomes, self._table.shard_effects(group, effects)

    def delete_groups(self, group_ids: Sequence[str], token: Token, now: Now) -> ShardEffects:
        """Delete groups without members; the reply is `Outcomes`."""
        outcomes: list[BrokerError | None] = []
        dead: list[str] = []
        for group_id in group_ids:
            group = self._table.get(group_id)
            if group is None or group.state is GroupState.DEAD:
                outcomes.append(GroupIdNotFound(group_id))
            elif group.state is not GroupState.EMPTY or (
                isinstance(group, ConsumerGroup) and not group.is_unused()
            ):
                outcomes.append(NonEmptyGroup(group_id))
            else:
                group.mark_dead(now)
                outcomes.append(None)
                dead.append(group_id)
        gone = {group_id: self._table.offsets.keys(group_id) for group_id in dead}
        return self._table.offsets.remove(gone, token, tuple(outcomes), dead=tuple(dead))

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `on_deadline` wants to be called; perhaps early, never late."""
        deadlines = (self._table.wakes.first(), self._expire_s, self._pass_on_s)
        return min((at_s for at_s in deadlines if at_s is not None), default=None)

    def on_deadline(self, now: Now) -> ShardEffects:
        """Do what is due in all groups."""
        table = self._table
        effects: list[ShardEffect] = []
        while (group_id := table.wakes.pop_due(now.s)) is not None:
            group = table.get(group_id)
            assert group is not None
            effects += table.shard_effects(group, group.on_deadline(now))
        if self._expire_s is not None and self._expire_s <= now.s:
            self._expire_s = now.s + self._config.offsets_check_interval_ms / 1000
            effects += self.offsets.expire(now)
        if self._pass_on_s is not None and self._pass_on_s <= now.s:
            self._pass_on_s = None
            effects += self.offsets.pass_on()
        return effects


def _check_texts(request: Join) -> None:
    """Refuse what no record could hold; newer versions of JoinGroup know no such limit."""
    texts = (request.instance_id or "", request.client_id, request.protocol_type)
    if not fits(request.group_id):
        raise InvalidGroupId("the group id is too long")
    if not all(fits(text) for text in (*texts, *(name for name, _ in request.protocols))):
        raise InvalidRequest("a name is too long")
