"""Which whole-cluster schedules are administered, and how: topics, settings and rights that change.

Operators create topics, delete them and make them anew at once under the same name; they change
settings, add partitions, assign leaders, give and take rights, users and quotas, and commit and
reset offsets, each time at whichever broker. `admin_book.py` says what must hold.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SHARE = 0.3
"""Of the schedules of the kind "mixed" that are not secured, out of random numbers of its own."""
NAMES = ("a0", "a1")
"""The topics that operators make and delete. So few that operators meet."""
ANYBODY = "User:ANONYMOUS"
"""Clients of these schedules do not log in, and may do everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOptions:
    """How a schedule is administered."""

    operators: int
    every_s: float
    """How long an operator waits between two changes, on average."""
    changes_max: int
    """How many changes each operator makes."""
    disturb_p: float
    """How likely a broker is disturbed while it is asked for a change."""
    has_newer: bool
    interrupt_p: float = 0.0
    """How likely a broker is interrupted that has just read what it is about to change."""
    steps: tuple[str, ...] = ()
    """What operators do, each as often as another; empty: all of `admin_clients.STEPS`."""
    """Whether one broker is of a newer release, which writes what the others do not know."""


def draw_admin(seed: int) -> AdminOptions | None:
    """Draw how a schedule is administered; None: it is not."""
    rng = random.Random(f"administered {seed}")
    if rng.random() >= SHARE:
        return None
    return AdminOptions(
        operators=rng.choice((1, 2, 2, 3)),
        every_s=rng.choice((0.02, 0.05, 0.2)),
        changes_max=rng.choice((15, 40)),
        disturb_p=rng.choice((0.0, 0.1, 0.3)),
        has_newer=rng.random() < 0.4,
    )
