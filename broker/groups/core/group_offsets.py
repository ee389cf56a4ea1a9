"""The committed offsets of one group, commits in flight, and when offsets expire.

The table of offsets changes only by `replay` of durable records. Beside it is a count of records
*in flight* for each partition: whoever removes offsets (expiry, deleted group, deleted topic) or
copies them (a snapshot of the log) must know what the log already holds beyond what the table
shows, or an older decision would undo an acknowledged commit.

When an offset expires (retention counted in broker time, from):

    group is Empty             the later of: group became Empty, offset was committed
    never had members          offset was committed
    Stable, type consumer      offset was committed, for topics nobody subscribes to any more
    otherwise                  never

Kafka counts an Empty group's offsets from the moment it became Empty only, so that an offset
reset by an administrator a week later is gone at once; here such a commit gets its full time.
An expiry time that an old client asked for itself (OffsetCommit v2-4) replaces the sum.

Source: Kafka's OffsetMetadataManager and ClassicGroup.offsetExpirationCondition; KIP-211.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker.groups.core.consumer_protocol import PROTOCOL_TYPE
from broker.groups.core.group_types import CommittedOffset, GroupState


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


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

    def is_older(self, key: TopicPartition, before_ms: int) -> bool:
        """Whether the newest that is known of a partition was committed before that time."""
        committed = self.get(key.topic, key.partition)
        return (
            committed is not None and committed.commit_ms < before_ms and key not in self._in_flight
        )

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


def lag(committed_offset: int, *, log_start_offset: int, high_watermark: int) -> int:
    """Return how many records a group still has to read in a partition.

    A commit below the log start counts from there: what retention removed cannot be read.
    """
    return max(high_watermark - max(committed_offset, log_start_offset), 0)
