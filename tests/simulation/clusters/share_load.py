"""Which whole-cluster schedules have share groups (KIP-932).

A share of the mixed ones that have no other load of their own, as groups of the consumer protocol
are (`consumer_load.py`): what strikes those strikes these, and their options come out of a stream
of random numbers of its own. The groups have a topic of their own, with writers of their own.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.simulation.shares.plan import draw_load

if TYPE_CHECKING:
    from tests.simulation.kafka.share_clients import ShareLoad

SHARE: Final = 0.12
"""Of the mixed schedules."""
FAULT_PHASE_S: Final = 4.0
"""How long faults last at least: for a few locks."""


def has_shares(seed: int) -> bool:
    """Tell whether a mixed schedule has such groups."""
    return random.Random(f"share groups {seed}").random() < SHARE


def draw_shares(seed: int) -> ShareLoad:
    """Draw the groups of a schedule."""
    rng = random.Random(f"share groups of {seed}")
    load = draw_load(rng)
    return replace(
        load,
        share=replace(load.share, work_s=rng.choice((0.02, 0.1))),
        session_s=2.0,
        writers=rng.choice((2, 3)),
        think_s=rng.choice((0.02, 0.05, 0.2)),
        order_every_s=rng.choice((0.0, 0.0, 2.0)),
    )
