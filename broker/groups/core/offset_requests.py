"""Commits, deletes and expires offsets: the requests about offsets of a coordinator partition."""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.core.coordinator_types import LogRecord, Now, Reply, Token
from broker.errors import (
    BrokerError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
)
from broker.groups.core.consumer_protocol import PROTOCOL_TYPE
from broker.groups.core.group_offsets import TopicPartition, Usage
from broker.groups.core.group_table import GroupTable
from broker.groups.core.group_types import (
    NO_GENERATION,
    Commit,
    CommittedOffset,
    GroupConfig,
    GroupState,
    OffsetToCommit,
    ProducerEpoch,
    ShardEffects,
)
from broker.groups.core.offset_changes import Outcomes
from broker.groups.core.offset_records import fits, offset_record


class OffsetRequests:
    """What changes offsets in a group table. The reply to each request is `Outcomes`."""

    def __init__(self, table: GroupTable, config: GroupConfig) -> None:
        self._table = table
        self._config = config

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
        group = self._table.get(commit.group_id)
        if group is not None:
            group.check_commit(commit, now)
            self._table.note((commit.group_id,))
        elif commit.generation > NO_GENERATION:
            raise GroupIdNotFound(commit.group_id)
        elif not fits(commit.group_id):
            raise InvalidGroupId("the group id is too long")
        expire_ms = now.ms + retention_ms if retention_ms >= 0 else -1
        keys, records, outcomes = self._records(commit.group_id, offsets, now, expire_ms)
        if not records:
            return (Reply(token, outcomes),)
        self._table.get_or_create(commit.group_id)
        return self._table.offsets.write({commit.group_id: keys}, records, token, outcomes)

    def commit_in_transaction(
        self,
        commit: Commit,
        offsets: Sequence[OffsetToCommit],
        producer: ProducerEpoch,
        token: Token,
        now: Now,
    ) -> ShardEffects:
        """Commit offsets that count when the transaction commits; the reply is `Outcomes`.

        Raises GroupError. A group that is not known yet is no error for a producer that is no
        member of it; the generation of members is checked, and so is a member id that is given.
        """
        group = self._table.get(commit.group_id)
        if group is not None:
            group.check_commit(commit, now, is_transactional=True)
            self._table.note((commit.group_id,))
        elif commit.generation > NO_GENERATION:
            raise IllegalGeneration(commit.group_id)
        elif not fits(commit.group_id):
            raise InvalidGroupId("the group id is too long")
        keys, records, outcomes = self._records(commit.group_id, offsets, now, -1)
        if not records:
            return (Reply(token, outcomes),)
        self._table.get_or_create(commit.group_id)
        return self._table.offsets.announce(
            commit.group_id, keys, records, producer, token, outcomes
        )

    def _records(
        self, group_id: str, offsets: Sequence[OffsetToCommit], now: Now, expire_ms: int
    ) -> tuple[list[TopicPartition], list[LogRecord], Outcomes]:
        """Return what is to be stored, and an outcome for each offset."""
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
            records.append(offset_record(group_id, one.topic, one.partition, committed))
        return keys, records, tuple(outcomes)

    def delete(self, group_id: str, keys: Sequence[TopicPartition], token: Token) -> ShardEffects:
        """Remove offsets; the reply is `Outcomes`. Raises GroupError."""
        group = self._table.get(group_id)
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
        known = frozenset(self._table.offsets.keys(group_id))
        gone = [
            key for key, error in zip(keys, outcomes, strict=True) if error is None and key in known
        ]
        return self._table.offsets.remove({group_id: gone}, token, outcomes)

    def delete_topic(self, topic: str, *, before_ms: int | None = None) -> ShardEffects:
        """Remove a topic's offsets: all, or with `before_ms` those committed earlier."""
        gone: dict[str, list[TopicPartition]] = {}
        for group_id in self._table.offsets:
            offsets = self._table.offsets.of(group_id)
            keys = self._table.offsets.keys(group_id, topic)
            if before_ms is not None:
                unstable = self._table.offsets.unstable(group_id)
                keys = [
                    key for key in keys if offsets.is_older(key, before_ms) and key not in unstable
                ]
            if keys:
                gone[group_id] = keys
        return self._table.offsets.remove(gone, None, ())

    def expire(self, now: Now) -> ShardEffects:
        """Remove expired offsets, and groups that have nothing left."""
        keys: dict[str, list[TopicPartition]] = {}
        dead: list[str] = []
        for group in self._table:
            group_id = group.group_id
            if group.state is GroupState.DEAD:
                continue
            offsets = self._table.offsets.of(group_id)
            usage = Usage(
                group.state, group.state_since_ms, group.protocol_type, group.subscribed_topics()
            )
            # What a transaction may still change has not ended.
            unstable = self._table.offsets.unstable(group_id)
            gone = [
                key
                for key in offsets.expired(usage, now.ms, self._config.offsets_retention_ms)
                if key not in unstable
            ]
            if gone:
                keys[group_id] = gone
            unused = group.is_unused()
            if unused and len(gone) == len(self._table.offsets.keys(group_id)):
                group.mark_dead(now)
                dead.append(group_id)
        return self._table.offsets.remove(keys, None, (), dead=tuple(dead))
