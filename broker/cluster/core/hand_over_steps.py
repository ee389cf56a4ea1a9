"""Decides the steps in which a broker gives its partitions away, or takes them back.

All partitions have an order, by topic id and index, and the broker's registration says from which
position on it takes part. On the way out that position moves from the first partition to the end,
on the way back from the end to the first. So the broker can turn round at any point, and every
broker knows of each partition whether it has moved yet.

Why steps: a moving partition has no leader until the next broker has taken it over, and takeovers
compete for the processors. If a hundred move at once, each waits nearly as long as the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from broker.cluster.core.assignment import planned_leaders
from broker.cluster.core.topology import BrokerInfo, Position, TopicInfo

FIRST: Final[Position] = (UUID(int=0), 0)
"""Before every partition: who takes part from here on, does everywhere."""
END: Final[Position] = (UUID(int=(1 << 128) - 1), 1 << 31)
"""Behind every partition: who takes part from here on, does nowhere."""

_STEPS_MAX: Final = 32
"""Each step costs every broker a new plan: there are no more of them, however much moves."""


class Step(NamedTuple):
    """A part of the way."""

    leads_from: Position | None
    """Where the broker takes part from then on; None: it has arrived."""
    moving: list[Position]
    """The partitions that get other leaders by this step."""


def steps(
    me: BrokerInfo, topics: Iterable[TopicInfo], brokers: Iterable[BrokerInfo], at_once: int
) -> list[Step]:
    """Return the steps from where a broker is (`leads_from`) to where it should be (`unloaded`).

    `at_once`: partitions of a step; more where the steps would be too many. The last step is
    always there, with nothing to move perhaps.
    """
    assert me.leads_from is not None, "it has arrived"
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
    """Yield the partitions whose leader depends on whether a broker takes part."""
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
