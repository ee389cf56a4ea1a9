"""A wall clock and a source of randomness that tests control."""

from __future__ import annotations

import random
import time


class FakeClock:
    """Wall time that moves only when told."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms


class WallClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def rng(seed: int = 0) -> random.Random:
    """Return a seeded source of randomness."""
    return random.Random(seed)
