"""The offsets of all groups of a coordinator, and the changes to them that are in flight.

For each append in flight it knows what that will change: who waits for it, which partitions it
writes, which groups it deletes. A change writes commits or tombstones; until it is settled its
partitions count as in flight (`group_offsets`), once per change.

What a transaction commits is *announced* until it is settled: it may be held in the log before it
gets its place there. From the announcement on its partitions are unstable, for a member that is
about to be replaced may have sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.coordinator.core.coordinator_types import (
    Append,
    LogRecord,
    Reply,
    Ticket,
    Token,
)
from broker.errors import BrokerError
from broker.groups.core.group_offsets import GroupOffsets, TopicPartition
from broker.groups.core.group_types import AppendPending, ProducerEpoch, ShardEffects
from broker.groups.core.offset_fold import OffsetFold
from broker.groups.core.offset_records import group_record, offset_record

Outcomes = tuple[BrokerError | None, ...]
"""One outcome per item of a request, in the request's order; None is success."""

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

    def __init__(self, new_ticket: Callable[[], Ticket]) -> None:
        self.fold = OffsetFold()
        """What is durable."""
        self._new_ticket = new_ticket
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
        records += (group_record(group_id, None) for group_id in dead)
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
