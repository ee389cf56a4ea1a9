"""The offsets of the groups of a coordinator partition: committed, pending, and on their way.

*One group* (`GroupOffsets`). The table of offsets changes only by `replay` of durable records.
Beside it is a count of records *in flight* for each partition: whoever removes offsets (expiry,
deleted group, deleted topic) or copies them (a snapshot of the log) must know what the log already
holds beyond what the table shows, or an older decision would undo an acknowledged commit.

When an offset expires (retention counted in broker time, from):

    group is Empty             the later of: group became Empty, offset was committed
    never had members          offset was committed
    Stable, type consumer      offset was committed, for topics nobody subscribes to any more
    otherwise                  never

Kafka counts an Empty group's offsets from the moment it became Empty only, so that an offset
reset by an administrator a week later is gone at once; here such a commit gets its full time.
An expiry time that an old client asked for itself (OffsetCommit v2-4) replaces the sum.

*Pending* offsets (`PendingOffsets`) are those of transactions. They are records of the log like any
other, but in their producer's transactional batches, and nobody sees them until the producer's
marker is durable: a COMMIT publishes them, an ABORT drops them. Two rules decide between a pending
offset and others of its partition:

    NEWER-WINS  A plain commit, or a removal, that comes later in the log ends what is pending: it
                could never become the group's offset any more, so nobody needs to wait for it.
    PUBLISHED   So does another transaction's offset that comes later and is published first.

So whatever is pending is newer than what is committed. Kafka keeps the partition unstable until the
marker in both cases; what is published is the same.

*All groups* (`OffsetFold`), as the durable log says:

    COPY-BEHIND  Older brokers copied what a transaction might still change at once, and marked it:
                 such a copy counts only if the log that is left holds no other, and it ends nothing
                 that is pending; for it may stand behind records that are newer than what it
                 copies. Now such offsets are copied later (`coordinator/coordinator_log.py`),
                 and the log is kept from the oldest pending record on (`GroupView.kept_from`).

*Changes* (`OffsetChanges`). For each append in flight it is known what that will change: who waits
for it, which partitions it writes, which groups it deletes. A change writes commits or tombstones;
until it is settled its partitions count as in flight, once per change. What a transaction commits
is *announced* until it is settled: it may be held in the log before it gets its place there. From
the announcement on its partitions are unstable, for a member that is about to be replaced may have
sent it.

Source: Kafka's OffsetMetadataManager and ClassicGroup.offsetExpirationCondition; KIP-98, KIP-211,
KIP-447.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.core.coordinator_types import (
    Append,
    LogRecord,
    Reply,
    Ticket,
    Token,
    TransactionalRecord,
)
from broker.errors import BrokerError
from broker.groups.core.consumer_protocol import PROTOCOL_TYPE
from broker.groups.core.group_types import (
    NO_TOPIC_ID,
    AppendPending,
    CommittedOffset,
    GroupState,
    ProducerEpoch,
    ShardEffects,
)
from broker.groups.core.offset_records import OffsetEntry, offset_record
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.control_batch import Marker

EPOCH_MAX: Final = 0x7FFF

Outcomes = tuple[BrokerError | None, ...]
"""One outcome per item of a request, in the request's order; None is success."""


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


class EndedTopic(NamedTuple):
    """A topic that is no more, although its name may be another one's by now."""

    name: str
    topic_id: UUID | None
    """None: whatever was committed under the name is gone."""
    before_ms: int | None = None
    """Records without a topic's id belong to it if they are older; None: they may be the next
    one's."""
    successor: UUID | None = None
    """Who has the name now, if that was heard while offsets could be committed here: a client that
    gave the name since `before_ms` meant this one, although our view still showed the other."""

    def has(self, committed: CommittedOffset) -> bool:
        """Whether an offset was committed for this topic."""
        if self.topic_id is None:
            return True
        if committed.topic_id == NO_TOPIC_ID:
            return self.before_ms is not None and committed.commit_ms < self.before_ms
        return committed.topic_id == self.topic_id

    def heir(self, committed: CommittedOffset) -> UUID | None:
        """Return the topic that the client meant, if it was the successor of this one."""
        is_later = self.before_ms is not None and committed.commit_ms >= self.before_ms
        return self.successor if committed.is_named and is_later else None


class Usage(NamedTuple):
    """What expiry needs to know of the group."""

    state: GroupState
    state_since_ms: int
    protocol_type: str | None
    subscribed: frozenset[str] | None
    """Topics that members consume; None if that cannot be known."""


class GroupOffsets:
    """Offsets of one group."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, CommittedOffset]] = {}
        self._in_flight: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        """Whether anything is committed or on its way."""
        return bool(self._topics or self._in_flight)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """Return a durable commit, or None."""
        return self._topics.get(topic, {}).get(partition)

    def has_topic(self, topic: str) -> bool:
        """Whether anything is committed for a topic."""
        return topic in self._topics

    def __iter__(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for topic, partitions in self._topics.items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def replay(self, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        """Take over a durable record: the only way the table changes."""
        if committed is not None:
            self._topics.setdefault(topic, {})[partition] = committed
        elif topic in self._topics:
            self._topics[topic].pop(partition, None)
            if not self._topics[topic]:
                del self._topics[topic]

    def sent(self, keys: Iterable[TopicPartition]) -> None:
        """Note that records for these partitions are on their way into the log."""
        for key in keys:
            self._in_flight[key] = self._in_flight.get(key, 0) + 1

    def settled(self, keys: Iterable[TopicPartition]) -> None:
        """Note that those records are replayed, or certainly not in the log."""
        for key in keys:
            left = self._in_flight[key] - 1
            if left:
                self._in_flight[key] = left
            else:
                del self._in_flight[key]

    def is_in_flight(self, key: TopicPartition) -> bool:
        """Whether the log holds, or may hold, something newer than the table."""
        return key in self._in_flight

    def topics(self) -> list[str]:
        """Return the names of the topics for which anything is committed."""
        return list(self._topics)

    def of_topic(self, name: str, topic_id: UUID) -> list[TopicPartition]:
        """Return the partitions for which something is committed for the topic of that id."""
        return [
            TopicPartition(name, index)
            for index, one in self._topics.get(name, {}).items()
            if one.topic_id == topic_id
        ]

    def topic_ids(self, topic: str) -> frozenset[UUID]:
        """Return the ids of the topics of that name for which anything is committed."""
        found = {one.topic_id for one in self._topics.get(topic, {}).values()}
        return frozenset(found - {NO_TOPIC_ID})

    def keys(self, topic: str | None = None) -> list[TopicPartition]:
        """Return what is committed or on its way, of one topic or of all."""
        known = dict.fromkeys(key for key, _ in self)
        known.update(dict.fromkeys(self._in_flight))
        return [key for key in known if topic is None or key.topic == topic]

    def expired(self, usage: Usage, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Return the partitions whose offset has ended; none that has a commit in flight."""
        return [
            key
            for key, committed in self
            if key not in self._in_flight
            and (end_ms := _end_ms(usage, key.topic, committed, retention_ms)) is not None
            and now_ms >= end_ms
        ]


def lag(committed_offset: int, *, log_start_offset: int, high_watermark: int) -> int:
    """Return how many records a group still has to read in a partition.

    A commit below the log start counts from there: what retention removed cannot be read.
    """
    return max(high_watermark - max(committed_offset, log_start_offset), 0)


def _end_ms(usage: Usage, topic: str, committed: CommittedOffset, retention_ms: int) -> int | None:
    base_ms = _expiry_base(usage, topic, committed)
    if base_ms is None:
        return None
    return committed.expire_ms if committed.expire_ms >= 0 else base_ms + retention_ms


def _expiry_base(usage: Usage, topic: str, committed: CommittedOffset) -> int | None:
    if usage.protocol_type is None:
        return committed.commit_ms
    if usage.state is GroupState.EMPTY:
        return max(usage.state_since_ms, committed.commit_ms)
    if (
        usage.state is GroupState.STABLE
        and usage.protocol_type == PROTOCOL_TYPE
        and usage.subscribed is not None
        and topic not in usage.subscribed
    ):
        return committed.commit_ms
    return None


class PendingOffset(NamedTuple):
    """An offset of an open transaction."""

    committed: CommittedOffset
    producer_epoch: int
    position: Offset
    """Of its record in the group's log."""


class HeardMarker(NamedTuple):
    """A marker that a partition has said to be written: now, or long ago.

    `epoch_max` is the highest producer epoch that it can be about: of old ones, the next
    transaction has a greater one, or is not open before the marker is confirmed.
    """

    marker: Marker
    epoch_max: int


class Published(NamedTuple):
    """An offset whose transaction has committed."""

    group_id: str
    key: TopicPartition
    committed: CommittedOffset


_Place = tuple[str, TopicPartition]


class PendingOffsets:
    """What is pending in all groups of a coordinator partition."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, dict[ProducerId, PendingOffset]]] = {}
        self._producers: dict[ProducerId, dict[_Place, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def __contains__(self, place: _Place) -> bool:
        group_id, key = place
        return key in self._groups.get(group_id, ())

    def __iter__(self) -> Iterator[str]:
        """Walk the groups that have any."""
        return iter(list(self._groups))

    def of(self, group_id: str) -> Iterator[tuple[TopicPartition, ProducerId, PendingOffset]]:
        """Walk what is pending in a group."""
        for key, producers in self._groups.get(group_id, {}).items():
            for producer_id, pending in producers.items():
                yield key, producer_id, pending

    def keys(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions of a group for which something is pending."""
        return list(self._groups.get(group_id, ()))

    def groups_of(self, producer_id: ProducerId) -> list[str]:
        """Return the groups in which a producer has something pending."""
        places = self._producers.get(producer_id, ())
        return list(dict.fromkeys(group_id for group_id, _ in places))

    def first_position(self) -> Offset | None:
        """Return where the oldest of all records lies that is pending."""
        positions = (
            pending.position for group_id in self._groups for _, _, pending in self.of(group_id)
        )
        return min(positions, default=None)

    def put(
        self, producer_id: ProducerId, group_id: str, key: TopicPartition, pending: PendingOffset
    ) -> None:
        """Take over a durable record of a transaction; it replaces an older one of the same."""
        self._groups.setdefault(group_id, {}).setdefault(key, {})[producer_id] = pending
        self._producers.setdefault(producer_id, {})[group_id, key] = None

    def drop(self, producer_id: ProducerId, group_id: str, key: TopicPartition) -> None:
        """Forget what one producer has pending for a partition, if anything."""
        producers = self._groups.get(group_id, {}).get(key, {})
        if producers.pop(producer_id, None) is None:
            return
        places = self._producers[producer_id]
        del places[group_id, key]
        if not places:
            del self._producers[producer_id]
        if not producers:
            keys = self._groups[group_id]
            del keys[key]
            if not keys:
                del self._groups[group_id]

    def overtake(self, group_id: str, key: TopicPartition, position: Offset | None = None) -> None:
        """Something was committed or removed later than what is pending: NEWER-WINS.

        With `position`, only what lies before it is ended: PUBLISHED.
        """
        producers = self._groups.get(group_id, {}).get(key)
        if not producers:
            return
        for producer_id, pending in list(producers.items()):
            if position is None or pending.position < position:
                self.drop(producer_id, group_id, key)

    def end(
        self, producer_id: ProducerId, *, is_commit: bool, epoch_max: int = EPOCH_MAX
    ) -> list[Published]:
        """The producer's transaction has ended; return what becomes visible by that.

        `epoch_max`: what is pending with a greater producer epoch is of the next transaction.
        """
        published: list[Published] = []
        for group_id, key in list(self._producers.get(producer_id, ())):
            pending = self._groups[group_id][key][producer_id]
            if pending.producer_epoch > epoch_max:
                continue
            self.drop(producer_id, group_id, key)
            if is_commit:
                self.overtake(group_id, key, pending.position)
                published.append(Published(group_id, key, pending.committed))
        return published

    def check(self) -> None:
        """Assert that both indexes say the same."""
        places = {
            (producer_id, group_id, key)
            for group_id, keys in self._groups.items()
            for key, producers in keys.items()
            for producer_id in producers
        }
        assert places == {
            (producer_id, *place)
            for producer_id, found in self._producers.items()
            for place in found
        }
        assert all(self._groups.values()) and all(self._producers.values())


class OffsetFold:
    """Offsets by group id; what is not there is empty."""

    def __init__(self) -> None:
        self.pending = PendingOffsets()
        self._offsets: dict[str, GroupOffsets] = {}
        self._copied: dict[tuple[str, TopicPartition], None] = {}
        """While the log is read: offsets that are known from copies alone."""

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._offsets, *self.pending)))

    def of(self, group_id: str) -> GroupOffsets:
        """Return a group's offsets, to be read only."""
        return self._offsets.get(group_id) or GroupOffsets()

    def replay(self, entry: OffsetEntry, *, is_copy: bool = False) -> None:
        """Take over a durable record, which ends what is pending; or a marked copy."""
        key = TopicPartition(entry.topic, entry.partition)
        place = entry.group_id, key
        offsets = self._offsets.setdefault(entry.group_id, GroupOffsets())
        if not is_copy:
            self.pending.overtake(*place)
            offsets.replay(*key, entry.committed)
        elif place in self._copied or offsets.get(*key) is None:
            self._copied[place] = None
            offsets.replay(*key, entry.committed)
        self._tidy(entry.group_id)

    def replay_pending(self, entry: OffsetEntry, record: TransactionalRecord) -> None:
        """Take over a durable record of a transaction, whose contents are `entry`."""
        key = TopicPartition(entry.topic, entry.partition)
        if entry.committed is None:
            self.pending.drop(record.producer_id, entry.group_id, key)
        else:
            pending = PendingOffset(entry.committed, record.producer_epoch, record.offset)
            self.pending.put(record.producer_id, entry.group_id, key, pending)

    def end_transaction(
        self, producer_id: ProducerId, *, is_commit: bool, epoch_max: int
    ) -> list[str]:
        """A producer's marker is durable; return the groups that had something pending."""
        groups = self.pending.groups_of(producer_id)
        published = self.pending.end(producer_id, is_commit=is_commit, epoch_max=epoch_max)
        for group_id, key, committed in published:
            self._copied.pop((group_id, key), None)
            self._offsets.setdefault(group_id, GroupOffsets()).replay(*key, committed)
        return groups

    def loaded(self) -> None:
        """The log was read to its end."""
        self._copied.clear()

    def sent(self, group_id: str, keys: Sequence[TopicPartition]) -> None:
        """Records about these partitions are on their way into the log."""
        self._offsets.setdefault(group_id, GroupOffsets()).sent(keys)

    def settled(self, group_id: str, keys: Sequence[TopicPartition]) -> None:
        """Those records are replayed, or certainly not in the log."""
        self._offsets[group_id].settled(keys)
        self._tidy(group_id)

    def check(self) -> None:
        """Assert the invariants."""
        self.pending.check()
        assert all(self._offsets.values())

    def _tidy(self, group_id: str) -> None:
        if not self._offsets[group_id]:
            del self._offsets[group_id]


Keys = Mapping[str, Sequence[TopicPartition]]
"""Partitions by group id."""


class Change(NamedTuple):
    """One append under way."""

    keys: Keys
    dead: tuple[str, ...]
    """Groups that end with it."""
    token: Token | None
    outcomes: Outcomes
    is_announced: bool = False
    """Of a transaction."""

    def replies(self, error: BrokerError | None = None) -> ShardEffects:
        """Return the answer to whoever waits, if anybody does."""
        if self.token is None:
            return ()
        return (Reply(self.token, self.outcomes if error is None else error),)


class OffsetChanges:
    """Offsets by group id; what is not there is empty."""

    def __init__(
        self,
        new_ticket: Callable[[], Ticket],
        tombstones: Callable[[str], Iterable[LogRecord]],
    ) -> None:
        """`tombstones` returns what removes a group from the log."""
        self.fold = OffsetFold()
        """What is durable."""
        self._new_ticket = new_ticket
        self._tombstones = tombstones
        self._changes: dict[Ticket, Change] = {}
        self._announced: dict[str, dict[TopicPartition, int]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.fold, *self._announced)))

    def of(self, group_id: str) -> GroupOffsets:
        """Return a group's offsets, to be read only."""
        return self.fold.of(group_id)

    def keys(self, group_id: str, topic: str | None = None) -> list[TopicPartition]:
        """Return what of a group is committed, pending or on its way, of one topic or of all."""
        keys = dict.fromkeys(self.of(group_id).keys(topic))
        keys.update((key, None) for key in self._unsettled(group_id) if topic in (None, key.topic))
        return list(keys)

    def unstable(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions of a group whose offset a transaction that is not over may change;
        the group is there as long as there are any."""
        return frozenset(self._unsettled(group_id))

    def write(
        self,
        keys: Keys,
        records: Iterable[LogRecord],
        token: Token | None,
        outcomes: Outcomes,
        *,
        dead: tuple[str, ...] = (),
    ) -> ShardEffects:
        """Append records about these partitions, then answer."""
        for group_id, written in keys.items():
            if written:
                self.fold.sent(group_id, written)
        ticket = self._new_ticket()
        self._changes[ticket] = Change(keys, dead, token, outcomes)
        return (Append(ticket, tuple(records)),)

    def announce(
        self,
        group_id: str,
        keys: Sequence[TopicPartition],
        records: Iterable[LogRecord],
        producer: ProducerEpoch,
        token: Token,
        outcomes: Outcomes,
    ) -> ShardEffects:
        """Append records of a transaction, then answer."""
        announced = self._announced.setdefault(group_id, {})
        for key in keys:
            announced[key] = announced.get(key, 0) + 1
        ticket = self._new_ticket()
        self._changes[ticket] = Change({group_id: keys}, (), token, outcomes, is_announced=True)
        return (AppendPending(ticket, tuple(records), producer),)

    def remove(
        self, keys: Keys, token: Token | None, outcomes: Outcomes, *, dead: tuple[str, ...] = ()
    ) -> ShardEffects:
        """Append tombstones of these partitions and of the groups in `dead`, then answer."""
        records = [
            offset_record(group_id, key.topic, key.partition, None)
            for group_id, gone in keys.items()
            for key in gone
        ]
        for group_id in dead:
            records += self._tombstones(group_id)
        if not records:
            return Change(keys, dead, token, outcomes).replies()
        return self.write(keys, records, token, outcomes, dead=dead)

    def settle(self, ticket: Ticket) -> Change:
        """A change is replayed, or certainly not in the log. Raises KeyError for unknown ones."""
        change = self._changes.pop(ticket)
        for group_id, written in change.keys.items():
            if change.is_announced:
                self._settle_announced(group_id, written)
            elif written:
                self.fold.settled(group_id, written)
        return change

    def give_up(self, error: BrokerError) -> ShardEffects:
        """Answer everybody who waits with an error."""
        changes, self._changes = self._changes, {}
        return [reply for change in changes.values() for reply in change.replies(error)]

    def check(self) -> None:
        """Assert the invariants."""
        self.fold.check()
        assert all(self._announced.values())

    def _unsettled(self, group_id: str) -> Sequence[TopicPartition]:
        return (*self.fold.pending.keys(group_id), *self._announced.get(group_id, ()))

    def _settle_announced(self, group_id: str, keys: Sequence[TopicPartition]) -> None:
        announced = self._announced[group_id]
        for key in keys:
            announced[key] -= 1
            if not announced[key]:
                del announced[key]
        if not announced:
            del self._announced[group_id]
