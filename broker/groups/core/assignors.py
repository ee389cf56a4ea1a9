"""Divides the partitions of topics among the members of a consumer group: `uniform` and `range`.

Both are given what each member wants and what it has been assigned so far, and return the same
answer for the same input. `uniform` leaves partitions where they are as long as no member has two
more than another one that could take one of them. `range` gives each member a run of adjacent
partitions of each topic, the same run for topics with the same members and as many partitions, so
that records with one key in two topics come to one member.

Source: KIP-848, Kafka's UniformAssignor and RangeAssignor.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from broker.groups.core.consumer_group_records import Partitions

ROUNDS_MAX: Final = 100
"""How often `uniform` goes through the topics to even out what different subscriptions left."""

Targets = dict[str, dict[UUID, frozenset[int]]]
"""Partitions by member and topic."""


class Wish(NamedTuple):
    """What an assignor knows of a member."""

    topics: frozenset[UUID]
    """What it subscribes to; only topics that exist."""
    assigned: Partitions
    """Its part of the target assignment before."""
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Wish], Mapping[UUID, int]], Targets]


def uniform(wishes: Mapping[str, Wish], partition_counts: Mapping[UUID, int]) -> Targets:
    """Return the partitions of each member: as even as subscriptions allow, and few that move.

    `partition_counts`: partitions of each topic.
    """
    members = sorted(wishes)
    subscribers = _subscribers(wishes, members)
    mine: dict[str, set[tuple[UUID, int]]] = {member: set() for member in members}
    free: dict[UUID, list[int]] = {}
    taken: set[tuple[UUID, int]] = set()
    for member in members:
        wish = wishes[member]
        for topic_id, indexes in wish.assigned.items():
            if topic_id not in wish.topics:
                continue
            count = partition_counts.get(topic_id, 0)
            for index in indexes:
                if index < count and (topic_id, index) not in taken:
                    taken.add((topic_id, index))
                    mine[member].add((topic_id, index))
    for topic_id in subscribers:
        count = partition_counts.get(topic_id, 0)
        free[topic_id] = [index for index in range(count) if (topic_id, index) not in taken]
    # Topics that few want go first: their subscribers have the least choice.
    for topic_id in sorted(subscribers, key=lambda each: (len(subscribers[each]), each)):
        _hand_out(topic_id, free[topic_id], subscribers[topic_id], mine)
    _even_out(subscribers, mine)
    return {member: _by_topic(found) for member, found in mine.items()}


def _hand_out(
    topic_id: UUID,
    indexes: list[int],
    members: list[str],
    mine: Mapping[str, set[tuple[UUID, int]]],
) -> None:
    """Give each partition that nobody has to the member with the fewest."""
    if not indexes:
        return
    heap = [(len(mine[member]), member) for member in members]
    heapq.heapify(heap)
    for index in indexes:
        count, member = heap[0]
        mine[member].add((topic_id, index))
        heapq.heapreplace(heap, (count + 1, member))


def _even_out(
    subscribers: Mapping[UUID, list[str]], mine: Mapping[str, set[tuple[UUID, int]]]
) -> None:
    """Move partitions from those who have many to those who have few, while that helps."""
    for _ in range(ROUNDS_MAX):
        has_moved = False
        for topic_id in sorted(subscribers):
            has_moved |= _even_out_topic(topic_id, subscribers[topic_id], mine)
        if not has_moved:
            return


def _even_out_topic(
    topic_id: UUID, members: list[str], mine: Mapping[str, set[tuple[UUID, int]]]
) -> bool:
    """Move partitions of one topic; return whether any moved."""
    indexes = {
        member: sorted(index for topic, index in mine[member] if topic == topic_id)
        for member in members
    }
    givers = [(-len(mine[member]), member) for member in members if indexes[member]]
    takers = [(len(mine[member]), member) for member in members]
    heapq.heapify(givers)
    heapq.heapify(takers)
    has_moved = False
    while givers:
        giver, taker = givers[0][1], takers[0][1]
        if (count := -len(mine[giver])) != givers[0][0]:
            heapq.heapreplace(givers, (count, giver))
            continue
        if (count := len(mine[taker])) != takers[0][0]:
            heapq.heapreplace(takers, (count, taker))
            continue
        if len(mine[giver]) - len(mine[taker]) < 2:
            break
        index = indexes[giver].pop()
        mine[giver].discard((topic_id, index))
        mine[taker].add((topic_id, index))
        has_moved = True
        if not indexes[giver]:
            heapq.heappop(givers)
    return has_moved


def range_(wishes: Mapping[str, Wish], partition_counts: Mapping[UUID, int]) -> Targets:
    """Return the partitions of each member: of each topic a run, longer ones for the first members.

    Static members come first, by instance id, so that their runs stay when others come and go.
    """
    order = sorted(wishes, key=lambda one: (wishes[one].instance_id is None,
                                            wishes[one].instance_id or one))  # fmt: skip
    targets: Targets = {member: {} for member in wishes}
    for topic_id, members in _subscribers(wishes, order).items():
        size, longer = divmod(partition_counts.get(topic_id, 0), len(members))
        start = 0
        for at, member in enumerate(members):
            end = start + size + (at < longer)
            if end > start:
                targets[member][topic_id] = frozenset(range(start, end))
            start = end
    return targets


def _subscribers(wishes: Mapping[str, Wish], order: list[str]) -> dict[UUID, list[str]]:
    found: dict[UUID, list[str]] = {}
    for member in order:
        for topic_id in wishes[member].topics:
            found.setdefault(topic_id, []).append(member)
    return found


def _by_topic(partitions: set[tuple[UUID, int]]) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, set[int]] = {}
    for topic_id, index in partitions:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}
"""By the names that members ask for; the first is taken if none is asked for."""
