"""Holding a metadata answer back while a partition is between two leaders.

This file is the only home of that wait. A client whose leader dies asks another broker within a
millisecond or two, before anybody has planned without the dead one. Named again, librdkafka
believes it, stops asking and looks at the partition a second later; named too early, the next
leader refuses, and the client backs off. So the answer waits until there is something to say.

A partition is between two leaders while

- the connection to its leader is broken, and `peers.py` has not found out yet what that means
  (connections break one after the other, so the leader is asked for a sign of life first); or
- the plan names another leader than before, and its leader epoch has not grown since.

The wait is a courtesy and bounded: a partition holds answers back for `hold_s` after it was first
seen so, then the answer says what is planned, and no leader instead of one in doubt: then clients
ask again soon. Nobody relies on it for safety.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

from broker.core.topology import TopicInfo
from client.ids import BrokerId, LeaderEpoch

_LOOK_AGAIN_S: Final = 0.005
"""Between two looks: much less than a takeover takes, and a look is cheap."""


class Epochs(Protocol):
    """The leader epochs, as far as they are known."""

    def get(self, topic: TopicInfo, index: int) -> LeaderEpoch:
        """Return the epoch of a partition; -1: not known."""
        ...

    async def load(self, topics: Iterable[TopicInfo]) -> None:
        """Read what is not known, or changed."""
        ...


class ClusterPlan(Protocol):
    """The part of the cluster's view that is asked."""

    @property
    def leader_epochs(self) -> Epochs:
        """The epochs of all partitions."""
        ...

    @property
    def topic_by_id(self) -> Mapping[UUID, TopicInfo]:
        """The topics as they are now."""
        ...

    def wanted_owner(self, topic: TopicInfo, index: int) -> BrokerId | None:
        """Return which live broker should lead a partition."""
        ...

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call after any change."""
        ...


class Peers(Protocol):
    """Who knows which brokers may be gone."""

    async def ask(self, brokers: Iterable[BrokerId]) -> None:
        """Find out about brokers."""
        ...

    def is_doubted(self, broker: BrokerId) -> bool:
        """Tell whether a broker may be gone."""
        ...


class _Seen:
    """One partition as it was when it last had a leader, and since when it has none."""

    __slots__ = ("epoch", "leader", "since_s")

    def __init__(self, leader: BrokerId | None, epoch: LeaderEpoch) -> None:
        self.leader = leader
        self.epoch = epoch
        self.since_s: float | None = None


class Successions:
    """Remembers the leaders of the partitions that clients ask about."""

    def __init__(self, cluster: ClusterPlan, peers: Peers, hold_s: float) -> None:
        self._cluster = cluster
        self._peers = peers
        self._hold_s = hold_s
        self._seen: dict[UUID, list[_Seen]] = {}
        cluster.add_listener(self._forget)

    async def settle(self, topics: Iterable[TopicInfo]) -> None:
        """Load the leader epochs of topics; wait while a partition is between two leaders."""
        topics = list(topics)
        if not topics or not self._hold_s:
            return
        epochs = self._cluster.leader_epochs
        await epochs.load(topics)
        await self._peers.ask(self._leaders(topics))
        open_ = [
            (topic.topic_id, index)
            for topic in topics
            for index in range(topic.partition_count)
            if self._is_open(topic.topic_id, index)
        ]
        while open_:
            await asyncio.sleep(_LOOK_AGAIN_S)
            current = self._cluster.topic_by_id
            left = dict.fromkeys(topic_id for topic_id, _ in open_)
            await epochs.load([current[topic_id] for topic_id in left if topic_id in current])
            # One that is open is reason enough: the others are looked at when it is not any more.
            while open_ and not self._is_open(*open_[-1]):
                open_.pop()

    def leader(self, topic: TopicInfo, index: int) -> BrokerId | None:
        """Return whom to send the clients of a partition to; None: nobody, as far as we know."""
        wanted = self._cluster.wanted_owner(topic, index)
        return None if wanted is not None and self._peers.is_doubted(wanted) else wanted

    def _leaders(self, topics: Iterable[TopicInfo]) -> Iterable[BrokerId]:
        wanted = self._cluster.wanted_owner
        leaders = (wanted(topic, i) for topic in topics for i in range(topic.partition_count))
        return dict.fromkeys(leader for leader in leaders if leader is not None)

    def _is_open(self, topic_id: UUID, index: int) -> bool:
        """Tell whether a partition is between two leaders, and has not been for too long."""
        topic = self._cluster.topic_by_id.get(topic_id)
        if topic is None or index >= topic.partition_count:
            return False
        leader = self._cluster.wanted_owner(topic, index)
        epoch = self._cluster.leader_epochs.get(topic, index)
        is_doubted = leader is not None and self._peers.is_doubted(leader)
        rows = self._seen.setdefault(topic_id, [])
        if index == len(rows):
            rows.append(_Seen(leader, epoch))
        seen = rows[index]
        if leader != seen.leader:
            if epoch > seen.epoch:
                seen.leader, seen.epoch = leader, epoch
        elif seen.since_s is None:  # else the epoch may be its successor's
            seen.epoch = epoch
        if not is_doubted and leader == seen.leader:
            seen.since_s = None
            return False
        now_s = asyncio.get_running_loop().time()
        if seen.since_s is None:
            seen.since_s = now_s
        return now_s < seen.since_s + self._hold_s

    def _forget(self) -> None:
        """Drop topics that are gone."""
        current = self._cluster.topic_by_id
        self._seen = {
            topic_id: rows for topic_id, rows in self._seen.items() if topic_id in current
        }
