"""The options of one schedule of a compacted partition, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """Options of one schedule, drawn from its seed."""

    keys: int
    batches: int
    think_s: float
    page_entries: int
    segment_bytes: int
    key_bytes: int
    lag_ms_min: int
    retain_ms: int
    grace_ms: int
    deletes: bool
    roll_p: float
    trim_p: float
    takeover_s: float
    break_off_s: float
    lose_p: float
    fail_p: float
    readers: int
    sweeps: bool
    transaction_p: float
    producers: int
    die_p: float
    slow_read_p: float
    """How often an answer of a bookie to a reader, or to the cleaner, is on its way for longer."""

    def describe(self) -> str:
        """Return the options, one per line."""
        return "\n".join(f"  {f.name} = {getattr(self, f.name)}" for f in fields(self))


def draw(seed: int) -> CompactionPlan:
    """Draw the options of a schedule."""
    rng = random.Random(f"compaction {seed}")
    return CompactionPlan(
        keys=rng.choice((1, 2, 4, 8)),
        batches=rng.choice((20, 40, 80)),
        think_s=rng.choice((0.01, 0.05, 0.2)),
        page_entries=rng.choice((2, 3, 256)),
        segment_bytes=rng.choice((200, 800, 1 << 20)),
        key_bytes=rng.choice((25 * 3, 25 * 5, 1 << 20)),
        lag_ms_min=rng.choice((0, 0, 300, 2000)),
        retain_ms=rng.choice((0, 50, 1000, 20_000)),
        grace_ms=rng.choice((500, 2000)),
        deletes=rng.random() < 0.2,
        roll_p=rng.choice((0.3, 0.6, 1.0)),
        trim_p=rng.choice((0.0, 0.0, 0.1)),
        takeover_s=rng.choice((0.3, 1.0, 1e9)),
        break_off_s=rng.choice((0.1, 0.5, 1e9)),
        lose_p=rng.choice((0.0, 0.02, 0.1)),
        fail_p=rng.choice((0.0, 0.0, 0.02)),
        readers=rng.choice((1, 2, 3)),
        sweeps=rng.random() < 0.5,
        transaction_p=rng.choice((0.0, 0.4, 0.8)),
        producers=rng.choice((1, 3)),
        die_p=rng.choice((0.0, 0.0, 0.01, 0.05)),
        slow_read_p=rng.choice((0.0, 0.02, 0.2)),
    )
