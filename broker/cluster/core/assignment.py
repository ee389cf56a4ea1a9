"""Plans which broker should lead which partition. Every broker computes the same plan.

Rendezvous hashing ranks the live brokers for each partition; the partition goes to the best-ranked
broker that does not have its share of the topic yet. So a topic is spread evenly even when it has
few partitions, and when a broker joins or leaves most partitions stay where they are. Partitions
added to a topic fill up the larger share, and the existing ones stay: the topic remembers its
former partition counts (`grown_from`). The plan is only a preference: fencing and compare-and-set
decide who leads.

Operators' choices come first. A partition with a replica list goes to the first eligible broker of
the list, and no other partition moves because of it. An unloaded broker is not eligible while any
other broker is. It is unloaded, and loaded again, in steps (`hand_over_steps.py`): in between it is
eligible from one position onwards, by topic id and partition index, and not before it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final
from uuid import UUID

from broker.cluster.core.topology import BrokerInfo, Position, TopicInfo
from client.ids import BrokerId

_NO_ASSIGNMENTS: Final[Mapping[int, tuple[BrokerId, ...]]] = MappingProxyType({})
_PLANS_KEPT: Final = 8192
"""Topics times sets of brokers: every step of a hand-over needs the same two plans again."""


def candidates(brokers: Iterable[BrokerInfo], at: Position) -> list[BrokerId]:
    """Return the brokers eligible to lead a partition: those not unloaded, or all if none is."""
    live = list(brokers)
    return [broker.id for broker in live if _is_eligible(broker, at)] or [
        broker.id for broker in live
    ]


def _is_eligible(broker: BrokerInfo, at: Position) -> bool:
    return not broker.unloaded if broker.leads_from is None else at >= broker.leads_from


def planned_leaders(topic: TopicInfo, brokers: Iterable[BrokerInfo]) -> tuple[BrokerId, ...]:
    """Return the preferred leader of each partition of a topic; empty without brokers."""
    live = list(brokers)
    places = [broker.leads_from for broker in live if broker.leads_from is not None]
    count = topic.partition_count
    cuts = {at for topic_id, at in places if topic_id == topic.topic_id and 0 < at < count}
    owners: list[BrokerId] = []
    for begin, end in pairwise(sorted({0, count, *cuts})):
        chosen = candidates(live, (topic.topic_id, begin))
        plan = preferred_leaders(topic.topic_id, count, chosen, topic.assignments, topic.grown_from)
        owners += plan[begin:end]
    return tuple(owners)


def preferred_leaders(
    topic_id: UUID,
    partition_count: int,
    brokers: Iterable[BrokerId],
    assignments: Mapping[int, tuple[BrokerId, ...]] = _NO_ASSIGNMENTS,
    grown_from: tuple[int, ...] = (),
) -> tuple[BrokerId, ...]:
    """Return the preferred leader of each partition of a topic; empty without brokers.

    Without replica lists no broker gets more than its share, ceil(partitions / brokers). The result
    depends only on the set of brokers, not on the order in which they are given. When a topic has
    grown, the partitions that it had at each count in `grown_from` stay where they were then.
    """
    live = tuple(sorted(set(brokers)))
    if not live:
        return ()
    owners = list(_spread(topic_id, (*grown_from, partition_count), live))
    for index, replicas in assignments.items():
        first = next((broker for broker in replicas if broker in live), None)
        if first is not None and index < partition_count:
            owners[index] = first
    return tuple(owners)


def replica_lists(
    topic: TopicInfo, brokers: Iterable[BrokerId], leaders: tuple[BrokerId, ...]
) -> list[tuple[BrokerId, ...]]:
    """Return the replica list of each partition as clients see it: the preferred leader first.

    A list that operators gave is returned as it is. Otherwise it is the broker that the plan
    prefers when all are eligible, followed by the next ones in a circle, as many as the replication
    factor: the list does not change while leadership moves between live brokers. Each of `leaders`,
    if there are any, is in its partition's list: clients expect that.
    """
    live = tuple(sorted(brokers))
    preferred = preferred_leaders(
        topic.topic_id, topic.partition_count, live, grown_from=topic.grown_from
    )
    lists: list[tuple[BrokerId, ...]] = []
    if not leaders:
        return [topic.assignments.get(index, ()) for index in range(topic.partition_count)]
    for index, leader in enumerate(leaders):
        at = live.index(preferred[index])
        circle = (live[at:] + live[:at])[: topic.replication_factor]
        if leader not in circle:
            circle = (*circle[:-1], leader)
        given = topic.assignments.get(index, circle)
        lists.append(given if leader in given else (*given, leader))
    return lists


@lru_cache(maxsize=_PLANS_KEPT)
def _spread(
    topic_id: UUID, counts: tuple[int, ...], live: tuple[BrokerId, ...]
) -> tuple[BrokerId, ...]:
    """Plan a topic that had these partition counts one after the other."""
    loads = dict.fromkeys(live, 0)
    owners: list[BrokerId] = []
    for count in counts:
        share = -(-count // len(live))
        for index in range(len(owners), count):
            owner = next(
                broker for broker in _ranked(topic_id, index, live) if loads[broker] < share
            )
            loads[owner] += 1
            owners.append(owner)
    return tuple(owners)


def _ranked(topic_id: UUID, index: int, live: tuple[BrokerId, ...]) -> list[BrokerId]:
    return sorted(live, key=lambda broker: _rank(topic_id, index, broker), reverse=True)


def _rank(topic_id: UUID, index: int, broker: BrokerId) -> bytes:
    seed = struct.pack(">16sqq", topic_id.bytes, index, broker)
    return hashlib.blake2b(seed, digest_size=8).digest()
