"""Commits, deletes and expires offsets: the requests about offsets of a coordinator partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

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
from broker.groups.core.group_offsets import EndedTopic, Keys, Outcomes, TopicPartition, Usage
from broker.groups.core.group_table import GroupTable
from broker.groups.core.group_types import (
    NO_GENERATION,
    Commit,
    CommittedOffset,
    GroupConfig,
    GroupState,
    OffsetToCommit,
    ProducerEpoch,
    ShardEffect,
    ShardEffects,
)
from broker.groups.core.offset_records import fits, offset_record

_ENDED_MAX: Final = 1_000
"""Topics that were made anew; what is on its way when one has ended is settled long before so many
others have."""


class OffsetRequests:
    """What changes offsets in a group table. The reply to each request is `Outcomes`."""

    def __init__(self, table: GroupTable, config: GroupConfig) -> None:
        self._table = table
        self._config = config
        self._ended: dict[UUID, EndedTopic] = {}
        """Topics whose name is another's, by id: what names them may still be on its way."""

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
            group.check_commit(commit, now, offsets=offsets)
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
            group.check_commit(commit, now, offsets=offsets, is_transactional=True)
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
                one.offset,
                one.leader_epoch,
                one.metadata,
                now.ms,
                expire_ms,
                one.topic_id,
                one.is_named,
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

    def delete_topic(self, ended: EndedTopic) -> ShardEffects:
        """Remove the offsets of a topic that is no more.

        What is on its way, or may still be changed by a transaction, stays unless all of the name
        is gone: nobody knows yet whose it is. If somebody else has the name, that is seen to when
        it is settled.
        """
        if ended.topic_id is None:
            found = {
                group_id: self._table.offsets.keys(group_id, ended.name)
                for group_id in self._table.offsets
            }
            gone = {group_id: keys for group_id, keys in found.items() if keys}
            return self._table.offsets.remove(gone, None, ())
        if ended.successor is not None:
            self._ended[ended.topic_id] = ended
            if len(self._ended) > _ENDED_MAX:
                del self._ended[next(iter(self._ended))]
        return self._pass_on(self._of_name(ended.name), ended)

    @property
    def has_ended(self) -> bool:
        """Whether offsets of topics that have ended may still be here, or on their way."""
        return bool(self._ended)

    def pass_on(self) -> ShardEffects:
        """See what is left of all topics that have ended."""
        effects: list[ShardEffect] = []
        for name in dict.fromkeys(ended.name for ended in self._ended.values()):
            effects += self._pass_on(self._of_name(name), None)
        return effects

    def _of_name(self, name: str) -> Keys:
        offsets = self._table.offsets
        return {group_id: offsets.of(group_id).keys(name) for group_id in offsets}

    def settled(self, keys: Keys) -> ShardEffects:
        """What was on its way has come: see whether its topic has ended since.

        It was stamped while our view still showed that topic, so the client may have meant the
        next one.
        """
        return self._pass_on(keys, None) if self._ended else ()

    def _pass_on(self, keys: Keys, ended: EndedTopic | None) -> ShardEffects:
        """Remove what belongs to a topic that has ended, `ended` or any; what was committed for its
        successor becomes that one's."""
        removed: dict[str, list[TopicPartition]] = {}
        inherited: dict[str, list[TopicPartition]] = {}
        records: list[LogRecord] = []
        for group_id, some in keys.items():
            offsets = self._table.offsets.of(group_id)
            unstable = self._table.offsets.unstable(group_id)
            for key in some:
                committed = offsets.get(*key)
                if committed is None or offsets.is_in_flight(key) or key in unstable:
                    continue
                one = ended or self._ended.get(committed.topic_id)
                if one is None or not one.has(committed):
                    continue
                heir = one.heir(committed)
                if heir is None:
                    removed.setdefault(group_id, []).append(key)
                else:
                    inherited.setdefault(group_id, []).append(key)
                    again = committed._replace(topic_id=heir)
                    records.append(offset_record(group_id, *key, again))
        effects = self._table.offsets.remove(removed, None, ())
        if not records:
            return effects
        return (*effects, *self._table.offsets.write(inherited, records, None, ()))

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
