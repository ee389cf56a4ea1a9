"""Which whole-cluster schedules are contended: operators who change the same few things at once.

They are schedules with operators (`admin_load.py`), in which nearly all else is left out. All
brokers are asked all the time, their metadata servers lag, answers are lost, and what was written
comes late: so a change often begins from what is no longer true, or does not know whether it was
made.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.simulation.clusters.admin_load import AdminOptions, draw_admin
from tests.simulation.clusters.secured_load import draw_secured
from tests.simulation.machine.store import LagOptions

if TYPE_CHECKING:
    from tests.simulation.machine.store import StoreOptions

KIND: Final = "contended"
_SHARE: Final = 0.25
"""Of the schedules with operators, out of random numbers of its own."""
_OF_TOPICS: Final = (
    "_replace", "_replace", "_turn_over", "_create", "_delete", "_grow", "_grow",
    "_configure_topic", "_assign", "_produce", "_commit", "_commit",
)  # fmt: skip
_OF_ENTRIES: Final = ("_allow", "_allow", "_revoke", "_revoke", "_configure_brokers", "_password")


def is_contended(seed: int) -> bool:
    """Whether a schedule of the kind "mixed" is one of these instead."""
    if random.Random(f"is contended {seed}").random() >= _SHARE:
        return False
    return draw_secured(seed) is None and draw_admin(seed) is not None


def draw_contended(rng: random.Random) -> AdminOptions:
    """Draw what operators do."""
    return AdminOptions(
        operators=rng.choice((3, 5)),
        every_s=0.02,
        changes_max=40,
        disturb_p=rng.choice((0.05, 0.2)),
        interrupt_p=rng.choice((0.1, 0.3)),
        steps=rng.choice((_OF_TOPICS, _OF_TOPICS, _OF_ENTRIES, ())),
        has_newer=rng.random() < 0.7,
    )


def draw_faults(rng: random.Random) -> dict[str, int]:
    """Draw what happens beside them: name of the class -> weight."""
    return {
        "pause broker": 1,
        "cut broker from store": rng.choice((1, 3)),
        "lagging store": 3,
        "spoiled node": rng.choice((0, 5, 10)),
        "failing request": rng.choice((0, 2)),
        "failing effect": rng.choice((0, 5)),
    }


def draw_store(rng: random.Random, store: StoreOptions) -> StoreOptions:
    """Draw how metadata servers lag, and what becomes of writes."""
    return replace(
        store,
        lose_request_p=0.02,
        lose_reply_p=rng.choice((0.05, 0.15)),
        lose_read_p=0.0,
        tail_p=0.0,
        lag=LagOptions(
            lag_s=rng.choice((0.02, 0.1)),
            lag_p=rng.choice((0.2, 0.6)),
            behind_p=0.9,
            behind_s=rng.choice((0.03, 0.1)),
            late_p=rng.choice((0.02, 0.1)),
            late_s=rng.choice((0.03, 0.2)),
            away_s=0.02,
        ),
    )
