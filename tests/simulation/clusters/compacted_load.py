"""Which whole-cluster schedules have a compacted topic, and what its compaction is like.

A share of the mixed schedules: everything that strikes those strikes these, and their options come
out of a stream of random numbers of its own, so that all other schedules stay what they were.
Records have keys, few of them, and tombstones; readers begin anew again and again, from the start
or from the middle; an operator asks for rounds, which also ends the pause after failures.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

SHARE: Final = 0.15
"""Of mixed schedules."""
TRANSACTIONS_SHARE: Final = 0.3
"""Of those: they have transactional writers, too, and readers of committed data."""
FAULTS: Final = {"slow link": 3, "slow bookie": 3}
"""Classes of `faults.py` that these schedules have beside those of their seed."""
RETAIN_MS_WAITED_FOR: Final = 1_000
"""Tombstones that are kept for no longer must be gone in the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """What the compaction of a schedule's topic is like."""

    keys: int
    tombstone_p: float
    segment_bytes: int
    dirty_ratio_min: str
    lag_ms_min: int
    retain_ms: int
    """delete.retention.ms"""
    grace_ms: int
    check_interval_ms: int
    bytes_per_s: int
    key_bytes_max: int
    retention_bytes: int
    """Of a topic that is deleted from, too; 0: it is not."""
    ask_every_s: float
    """How often somebody asks for a round."""
    rest_s_max: float
    """How long a slow reader rests between two answers."""


def is_compacted(seed: int, kind: str) -> bool:
    """Tell whether a schedule of a kind has a compacted topic."""
    return kind == "mixed" and random.Random(f"compacted {seed}").random() < SHARE


def draw_compaction(rng: random.Random) -> CompactionOptions:
    """Draw the options of a schedule."""
    return CompactionOptions(
        keys=rng.choice((1, 2, 4, 8)),
        tombstone_p=rng.choice((0.1, 0.25, 0.5)),
        segment_bytes=rng.choice((350, 600, 900)),
        dirty_ratio_min=rng.choice(("0", "0", "0.5")),
        lag_ms_min=rng.choice((0, 0, 300, 1_500)),
        retain_ms=rng.choice((0, 100, 1_000, 3_600_000)),
        grace_ms=rng.choice((300, 1_500)),
        check_interval_ms=rng.choice((50, 200)),
        bytes_per_s=rng.choice((0, 0, 5_000, 20_000)),
        key_bytes_max=rng.choice((25 * 3, 25 * 5, 1 << 20)),
        retention_bytes=rng.choice((0, 0, 0, 0, 2_000)),
        ask_every_s=rng.choice((0.1, 0.5)),
        rest_s_max=rng.choice((0.1, 0.1, 1.0)),
    )
