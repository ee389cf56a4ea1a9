"""What one schedule of a consumer group alone is like: its options, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Final

from tests.simulation.kafka.consumer_member import ConsumerOptions, Subscription

GROUP: Final = "g"
FIRST, SECOND, LATER = "t1", "t2", "t3"
"""Topics; the last one is created while the group works."""
NAMES: Final = Subscription((FIRST, SECOND))
_EVERYTHING: Final = Subscription((), "t.*")
_SUBSCRIPTIONS: Final = (
    (NAMES,),
    (NAMES, Subscription((FIRST,))),
    (_EVERYTHING,),
    (NAMES, _EVERYTHING, Subscription((SECOND,), "t[13]")),
    (Subscription((FIRST, SECOND, LATER)), Subscription((LATER,)), NAMES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """Options of one schedule."""

    seed: int
    members: int
    statics: int
    """How many of them have an instance id."""
    partitions: int
    """Of each topic, at first."""
    consumer: ConsumerOptions
    assignor: str
    heartbeat_ms: int
    assignment_interval_ms: int
    fault_s: float
    fault_every_s: float
    away_s: float
    """Mean time for which a member is away that has left."""
    leave_weight: int
    """How often members leave and topics grow, among the faults."""
    log_copy_bytes: int
    ledger_s: float
    """Mean time of an entry's way to its ledger, and of the answer's way back."""

    def describe(self) -> str:
        """Return the options, one per line."""
        return "\n".join(f"  {one.name} = {getattr(self, one.name)}" for one in fields(self))


_HASTY_P: Final = 0.15


def kind_of(seed: int) -> str:
    """Return which rare moment a schedule aims at: `hasty`, members take what they were told while
    their heartbeats get no answers and targets change; empty: none."""
    return "hasty" if random.Random(f"groups kind {seed}").random() < _HASTY_P else ""


def draw(seed: int) -> GroupPlan:
    """Draw the options of a schedule."""
    plan = _draw_any(seed)
    if kind_of(seed) != "hasty":
        return plan
    return replace(
        plan,
        members=4,
        statics=0,
        consumer=replace(
            plan.consumer,
            lose_p=0.2,
            slow_p=0.0,
            hasty_p=0.9,
            take_s=1.0,
            change_p=0.02,
        ),
        heartbeat_ms=200,
        assignment_interval_ms=0,
        away_s=0.3,
        leave_weight=3,
    )


def _draw_any(seed: int) -> GroupPlan:
    rng = random.Random(f"groups {seed}")
    members = rng.choice((2, 3, 3, 4))
    return GroupPlan(
        seed=seed,
        members=members,
        statics=rng.choice((0, 1, members)),
        partitions=rng.choice((2, 3, 5)),
        consumer=ConsumerOptions(
            session_s=3.0,
            rebalance_s=rng.choice((1.0, 2.0, 10.0)),
            subscriptions=rng.choice(_SUBSCRIPTIONS),
            change_p=rng.choice((0.0, 0.02, 0.1)),
            lose_p=rng.choice((0.0, 0.03, 0.1)),
            late_p=rng.choice((0.0, 0.1, 0.5)),
            late_s=rng.choice((0.05, 0.3)),
            slow_p=rng.choice((0.0, 0.05, 0.2)),
            acks_early_p=rng.choice((0.0, 0.5, 1.0)),
            hasty_p=rng.choice((0.0, 0.5)),
            take_s=rng.choice((0.0, 0.0, 0.5)),
            by_id_p=rng.choice((0.0, 0.5)),
        ),
        assignor=rng.choice(("uniform", "uniform", "range")),
        heartbeat_ms=rng.choice((200, 300, 600)),
        assignment_interval_ms=rng.choice((0, 0, 300, 1_000)),
        fault_s=rng.choice((15.0, 30.0)),
        fault_every_s=rng.choice((0.5, 1.0, 2.0)),
        away_s=rng.choice((0.3, 2.0)),
        leave_weight=rng.choice((1, 3)),
        log_copy_bytes=rng.choice((2_000, 5_000, 1 << 20)),
        ledger_s=rng.choice((0.02, 0.02, 0.15)),
    )
