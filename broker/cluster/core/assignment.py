"""Which broker should lead which partition: a plan that every broker computes alike.

Rendezvous hashing ranks the live brokers for each partition; a partition goes to the best-ranked
broker that does not have its share of the topic yet. So a topic is spread evenly even when it has
few partitions, and when a broker comes or goes most partitions stay where they are. Partitions
that are added to a topic take what is left of the larger share, and those that were there stay:
the topic remembers the numbers it had (`grown_from`). The plan is a wish: fencing and
compare-and-set decide.

Operators' wishes come first. A partition with a replica list goes to the first broker of the list
that takes part, and nothing else moves because of it. A broker that was unloaded takes no part
while any other one does. It goes, and comes back, in steps (`hand_over_steps.py`): on the way it
takes part in the partitions from one place on, by topic id and index, and not in those before.
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
"""Topics times sets of brokers: every step of a hand-over asks for the same two plans again."""


def candidates(brokers: Iterable[BrokerInfo], at: Position) -> list[BrokerId]:
    """Return who takes part in a partition: those not unloaded, or all if there is no other."""
    live = list(brokers)
    return [broker.id for broker in live if _takes_part(broker, at)] or [
        broker.id for broker in live
    ]


def _takes_part(broker: BrokerInfo, at: Position) -> bool:
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
    depends on the set of brokers only, not on the order in which they are given. Of a topic that
    has grown, the partitions it had at each of the numbers `grown_from` are where they were then.
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
    """Return the replica list of each partition, as tools show it: the preferred leader first.

    What operators gave is shown as it is. Else it is the broker that the plan prefers when all
    take part, and those after it in a circle, as many as there are copies: a list does not change
    while leadership moves between live brokers. `leaders`, if there are any, are in their
    partitions' lists: clients expect that.
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
    """Plan a topic that had these numbers of partitions one after the other."""
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
