"""Which whole-cluster schedules have a group of the consumer protocol (KIP-848).

A share of the mixed ones that have no other load of their own: what strikes those strikes these,
and their options come out of a stream of random numbers of its own, so that all other schedules
stay what they were. Members come, go and die, and the group's topic grows; it has a topic of its
own, in which nobody writes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.simulation.kafka.consumer_member import ConsumerOptions, Subscription

SHARE: Final = 0.1
"""Of the mixed schedules."""
CONSUMED: Final = "consumed"
"""The group's topic."""
PARTITIONS_MAX: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLoad:
    """What the group of a schedule is like."""

    members: int
    statics: int
    partitions: int
    consumer: ConsumerOptions
    heartbeat_ms: int
    assignment_interval_ms: int
    leave_every_s: float
    """How often some member leaves for a while."""
    grow_every_s: float
    """How often the topic gets a partition."""


def has_consumers(seed: int) -> bool:
    """Tell whether a mixed schedule has such a group."""
    return random.Random(f"consumers {seed}").random() < SHARE


def draw_consumers(seed: int) -> ConsumerLoad:
    """Draw the group of a schedule."""
    rng = random.Random(f"consumers of {seed}")
    members = rng.choice((2, 3))
    return ConsumerLoad(
        members=members,
        statics=rng.choice((0, 1, members)),
        partitions=rng.choice((2, 4)),
        consumer=ConsumerOptions(
            session_s=2.0,
            rebalance_s=rng.choice((1.0, 4.0)),
            subscriptions=rng.choice(((Subscription((CONSUMED,)),), (Subscription((), "cons.*"),))),
            change_p=0.0,
            lose_p=rng.choice((0.0, 0.05)),
            late_p=rng.choice((0.0, 0.3)),
            late_s=rng.choice((0.05, 0.3)),
            slow_p=rng.choice((0.0, 0.1)),
            acks_early_p=rng.choice((0.0, 0.5, 1.0)),
            hasty_p=rng.choice((0.0, 0.5)),
            take_s=rng.choice((0.0, 0.3)),
            by_id_p=rng.choice((0.0, 0.5)),
        ),
        heartbeat_ms=rng.choice((100, 300)),
        assignment_interval_ms=rng.choice((0, 300)),
        leave_every_s=rng.choice((0.5, 2.0)),
        grow_every_s=rng.choice((1.0, 4.0)),
    )
