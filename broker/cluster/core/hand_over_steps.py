"""Decides the steps in which a broker hands its partitions over, or takes them back.

Partitions are ordered by topic id and index, and the broker's registration says from which position
onwards it is eligible to lead. While it is unloaded, that position moves from the first partition
to the end; while it is loaded again, from the end to the first. So the direction can change at any
point, and every broker knows for each partition whether it has moved yet.

Why in steps: a moving partition has no leader until the next broker has taken it over, and
takeovers compete for CPU. If a hundred move at once, each waits nearly as long as the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from broker.cluster.core.assignment import planned_leaders
from broker.cluster.core.topology import BrokerInfo, Position, TopicInfo

FIRST: Final[Position] = (UUID(int=0), 0)
"""Before every partition: a broker eligible from here on is eligible for all."""
END: Final[Position] = (UUID(int=(1 << 128) - 1), 1 << 31)
"""After every partition: a broker eligible from here on is eligible for none."""

_STEPS_MAX: Final = 32
"""Each step costs every broker a new plan, so there are at most this many, however much moves."""


class Step(NamedTuple):
    """One step of a hand-over."""

    leads_from: Position | None
    """From where the broker is eligible after the step; None: the hand-over is complete."""
    moving: list[Position]
    """The partitions whose leader this step changes."""


def steps(
    me: BrokerInfo, topics: Iterable[TopicInfo], brokers: Iterable[BrokerInfo], at_once: int
) -> list[Step]:
    """Return the steps that take a broker from its position (`leads_from`) to `unloaded`.

    `at_once`: partitions per step; more if there would be too many steps. There is always a last
    step, even if it moves nothing.
    """
    assert me.leads_from is not None, "no hand-over is in progress"
    going, here = me.unloaded, me.leads_from
    others = [broker for broker in brokers if broker.id != me.id]
    way = [at for at in _differences(me, topics, others) if (at >= here) == going]
    way.sort(reverse=not going)
    size = max(at_once, -(-len(way) // _STEPS_MAX))
    parts = [way[begin : begin + size] for begin in range(0, len(way), size)] or [[]]
    return [
        *(Step(_behind(part[-1]) if going else part[-1], part) for part in parts[:-1]),
        Step(None, parts[-1]),
    ]


def _differences(
    me: BrokerInfo, topics: Iterable[TopicInfo], others: list[BrokerInfo]
) -> Iterable[Position]:
    """Yield the partitions whose leader depends on whether a broker is eligible."""
    loaded = dataclasses.replace(me, unloaded=False, leads_from=None)
    unloaded = dataclasses.replace(me, unloaded=True, leads_from=None)
    for topic in topics:
        there = planned_leaders(topic, [*others, loaded])
        away = planned_leaders(topic, [*others, unloaded])
        for index, (one, other) in enumerate(zip(there, away, strict=True)):
            if one != other:
                yield topic.topic_id, index


def _behind(at: Position) -> Position:
    return at[0], at[1] + 1
