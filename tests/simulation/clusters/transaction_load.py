"""Which transactional clients a whole-cluster schedule has, and how they behave.

Schedules of the kind `transactions` are ordinary ones, with writers and chains on top that speak
the first or the second transaction protocol, and readers of committed data.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SWEEP_S = 0.3
"""How often coordinators look for transactions that are open for too long, in schedules."""

GENERATIONS = ((1,), (2,), (1, 2))
"""Protocols of the clients of a schedule: those that brokers serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOptions:
    """What transactional clients of a schedule are like."""

    writers: int
    chains: int
    """Programs that read committed data, and write what they make of it with their offsets."""
    readers: int
    """Readers of committed data."""
    transactions: int
    """How many each writer begins before healing."""
    records_max: int
    """Records of a transaction in a partition, in batches of one or two."""
    timeout_ms: int
    generations: tuple[int, ...]
    """Which protocols clients speak: 1 (TV1), 2 (KIP-890, TV2)."""
    abort_p: float
    silence_p: float
    """How often a client says nothing for longer than its transaction may last, or for ever."""
    late_p: float
    """How often a request is sent over a new connection, and arrives over the old one later."""
    zombie_p: float
    """How often another client of the same name begins while one works."""
    think_s: float
    coordinators: int
    """Partitions of the coordinators' topic."""
    log_copy_bytes: int
    block_entries: int
    """Aborted transactions that make a block of a ledger's index."""


def draw_transactions(rng: random.Random) -> TransactionOptions:
    """Draw the transactional clients of a schedule."""
    return TransactionOptions(
        writers=rng.choice((1, 2, 2)),
        chains=rng.choice((0, 1, 1)),
        readers=rng.choice((1, 1, 2)),
        transactions=rng.choice((5, 10, 15)),
        records_max=rng.choice((1, 2, 4)),
        timeout_ms=rng.choice((800, 2_000, 5_000)),
        generations=rng.choice(GENERATIONS),
        abort_p=rng.choice((0.1, 0.3, 0.5)),
        silence_p=rng.choice((0.0, 0.1, 0.2)),
        late_p=rng.choice((0.0, 0.1, 0.3)),
        zombie_p=rng.choice((0.0, 0.1, 0.2)),
        think_s=rng.choice((0.0, 0.02, 0.1)),
        coordinators=rng.choice((1, 1, 2)),
        log_copy_bytes=rng.choice((1_000, 3_000, 1 << 20)),
        block_entries=rng.choice((1, 2, 1_000)),
    )
