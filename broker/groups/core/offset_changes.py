"""The offsets of all groups of a coordinator, and the changes to them that are in flight.

For each append in flight it knows what that will change: who waits for it, which partitions it
writes, which groups it deletes. A change writes commits or tombstones; until it is settled its
partitions count as in flight (`group_offsets`), once per change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.coordinator.core.coordinator_types import Append, LogRecord, Reply, Ticket, Token
from broker.errors import BrokerError
from broker.groups.core.group_offsets import GroupOffsets, TopicPartition
from broker.groups.core.group_types import ShardEffects
from broker.groups.core.offset_records import OffsetEntry, group_record, offset_record

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

    def replies(self, error: BrokerError | None = None) -> ShardEffects:
        """Return the answer to whoever waits, if anybody does."""
        if self.token is None:
            return ()
        return (Reply(self.token, self.outcomes if error is None else error),)


class OffsetChanges:
    """Offsets by group id; what is not there is empty."""

    def __init__(self, new_ticket: Callable[[], Ticket]) -> None:
        self._new_ticket = new_ticket
        self._offsets: dict[str, GroupOffsets] = {}
        self._changes: dict[Ticket, Change] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._offsets))

    def of(self, group_id: str) -> GroupOffsets:
        """Return a group's offsets, to be read only."""
        return self._offsets.get(group_id) or GroupOffsets()

    def replay(self, entry: OffsetEntry) -> None:
        """Take over a durable record."""
        offsets = self._offsets.setdefault(entry.group_id, GroupOffsets())
        offsets.replay(entry.topic, entry.partition, entry.committed)
        if not offsets:
            del self._offsets[entry.group_id]

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
                self._offsets.setdefault(group_id, GroupOffsets()).sent(written)
        ticket = self._new_ticket()
        self._changes[ticket] = Change(keys, dead, token, outcomes)
        return (Append(ticket, tuple(records)),)

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
            if written:
                offsets = self._offsets[group_id]
                offsets.settled(written)
                if not offsets:
                    del self._offsets[group_id]
        return change

    def give_up(self, error: BrokerError) -> ShardEffects:
        """Answer everybody who waits with an error."""
        changes, self._changes = self._changes, {}
        return [reply for change in changes.values() for reply in change.replies(error)]
