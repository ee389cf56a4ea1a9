"""Delays metadata answers while a partition is between two leaders.

A client whose leader dies asks another broker within a millisecond or two, before any broker has
planned without the dead one. If the answer names the dead leader, librdkafka stops asking and
checks the partition again a second later. If it names the next leader too early, that one refuses
and the client backs off. So the answer waits until the new leader is known.

A partition is between two leaders while

- the connection to its leader is broken, and `peers.py` does not know yet what that means
  (connections break one after the other, so the leader is probed first); or
- the plan names another leader than before, and its leader epoch has not grown since; or
- it is new and has had no leader yet.

The wait is an optimization, and bounded: a partition delays answers for at most `hold_s` after it
was first seen in that state. Then the answer names the planned leader, but no leader at all if that
one is suspected to be dead, or if the partition is new, so that clients ask again soon. Safety does
not depend on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from client.ids import BrokerId, LeaderEpoch

_LOOK_AGAIN_S: Final = 0.005
"""Polling interval: much shorter than a takeover, and a check is cheap."""

_TopicState = tuple[
    Sequence[BrokerId | None], Sequence[LeaderEpoch], frozenset[BrokerId], frozenset[int]
]
"""Everything that the state of a topic depends on: planned leaders, leader epochs, suspected
leaders, and the partitions that have had no leader yet."""


class Epochs(Protocol):
    """The known leader epochs."""

    def of(self, topic: TopicInfo) -> tuple[LeaderEpoch, ...]:
        """Return the epoch of each partition; -1: not known."""
        ...

    def unled(self, topic: TopicInfo) -> frozenset[int]:
        """Return the partitions that are known to have had no leader yet."""
        ...

    async def load(self, topics: Iterable[TopicInfo]) -> None:
        """Read epochs that are not known, or have changed."""
        ...


class ClusterPlan(Protocol):
    """The part of the cluster's view that is needed here."""

    @property
    def leader_epochs(self) -> Epochs:
        """The epochs of all partitions."""
        ...

    @property
    def topic_by_id(self) -> Mapping[UUID, TopicInfo]:
        """The topics as they are now."""
        ...

    def preferred_leaders(self, topic: TopicInfo) -> tuple[BrokerId, ...]:
        """Return which live broker should lead each partition; empty while no broker is live."""
        ...

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call after any change."""
        ...


class Peers(Protocol):
    """Detects brokers that may be dead."""

    async def ask(self, brokers: Iterable[BrokerId]) -> None:
        """Probe brokers."""
        ...

    def is_suspected(self, broker: BrokerId) -> bool:
        """Return whether a broker may be dead."""
        ...


class _LastLeaders:
    """The last known leader of each partition of a topic."""

    __slots__ = ("epochs", "leaders", "since_s", "state")

    def __init__(self) -> None:
        self.leaders: list[BrokerId | None] = []
        self.epochs: list[LeaderEpoch] = []
        self.since_s: dict[int, float] = {}
        """Partitions without a leader, and since when."""
        self.state: _TopicState | None = None
        """State at the last update: the same state needs no update."""

    def update(self, state: _TopicState, now_s: float) -> None:
        """Find the partitions without a leader."""
        self.state = state
        for index, (leader, epoch) in enumerate(zip(state[0], state[1], strict=True)):
            if index == len(self.leaders):
                self.leaders.append(leader)
                self.epochs.append(epoch)
            if leader != self.leaders[index]:
                if epoch > self.epochs[index]:
                    self.leaders[index], self.epochs[index] = leader, epoch
            elif index not in self.since_s:  # else the epoch may be its successor's
                self.epochs[index] = epoch
            is_led = leader not in state[2] and index not in state[3]
            if leader == self.leaders[index] and is_led:
                self.since_s.pop(index, None)
            else:
                self.since_s.setdefault(index, now_s)


class LeaderChangeTracker:
    """Remembers the leaders of the partitions that clients ask about."""

    def __init__(self, cluster: ClusterPlan, peers: Peers, hold_s: float) -> None:
        self._cluster = cluster
        self._peers = peers
        self._hold_s = hold_s
        self._last: dict[UUID, _LastLeaders] = {}
        self._leaders: dict[UUID, tuple[Sequence[BrokerId], frozenset[BrokerId]]] = {}
        """By topic: the planned leader of each partition, and the set of them."""
        cluster.add_listener(self._forget)

    async def settle(self, topics: Iterable[TopicInfo]) -> None:
        """Load the leader epochs of topics, and wait while a partition is between two leaders."""
        topics = list(topics)
        epochs = self._cluster.leader_epochs
        await epochs.load(topics)
        if not topics or not self._hold_s:
            return
        now_s = asyncio.get_running_loop().time
        await self._peers.ask(sorted(frozenset().union(*map(self._leaders_of, topics))))
        until_s = now_s() + self._hold_s
        open_ = [(topic.topic_id, self._open_in(topic.topic_id)) for topic in topics]
        open_ = [(topic_id, indexes) for topic_id, indexes in open_ if indexes]
        while open_ and now_s() < until_s:
            await asyncio.sleep(_LOOK_AGAIN_S)
            current = self._cluster.topic_by_id
            await epochs.load([current[topic_id] for topic_id, _ in open_ if topic_id in current])
            # One such topic is reason enough to wait: the others are checked after it.
            while open_:
                topic_id, indexes = open_.pop()
                if left := indexes & self._open_in(topic_id):
                    open_.append((topic_id, left))
                    break

    def suspected(self, topic: TopicInfo) -> frozenset[BrokerId]:
        """Return the planned leaders of a topic that may be dead: answers must not name them."""
        return frozenset(filter(self._peers.is_suspected, self._leaders_of(topic)))

    def _leaders_of(self, topic: TopicInfo) -> frozenset[BrokerId]:
        planned = self._cluster.preferred_leaders(topic)
        known = self._leaders.get(topic.topic_id)
        if known is None or known[0] is not planned:
            known = self._leaders[topic.topic_id] = planned, frozenset(planned)
        return known[1]

    def _open_in(self, topic_id: UUID) -> frozenset[int]:
        """Return the partitions that have been between two leaders for less than `hold_s`."""
        topic = self._cluster.topic_by_id.get(topic_id)
        if topic is None:
            return frozenset()
        leaders = self._cluster.preferred_leaders(topic) or (None,) * topic.partition_count
        epochs = self._cluster.leader_epochs
        state = leaders, epochs.of(topic), self.suspected(topic), epochs.unled(topic)
        last = self._last.setdefault(topic_id, _LastLeaders())
        now_s = asyncio.get_running_loop().time()
        if state != last.state:
            last.update(state, now_s)
        begun_s = now_s - self._hold_s
        return frozenset(index for index, since_s in last.since_s.items() if since_s > begun_s)

    def _forget(self) -> None:
        """Drop topics that are gone."""
        current = self._cluster.topic_by_id
        self._last = {at: last for at, last in self._last.items() if at in current}
        self._leaders = {at: known for at, known in self._leaders.items() if at in current}
