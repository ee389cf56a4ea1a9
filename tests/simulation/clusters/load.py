"""Which whole-cluster schedules are overloaded, and how: small limits, slow links, rude clients.

Two kinds, beside the ordinary schedules and those with transactions:

    busy      everything is slow and every queue is full, and nothing else happens: whoever takes
              that for a failure is seen (T18), and so is who does not answer (T19)
    crowded   the same on top of whatever faults the seed has drawn

In both, what nodes hold is held against their limits after their steps (`held_bytes.py`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

KINDS = {"transactions": 8, "mixed": 80, "crowded": 6, "busy": 6}
"""Shares of the kinds of cluster schedules, in percent. Transactions are on top of what a mixed one
has (`transaction_load.py`)."""

FAULTS = ("slow link", "slow bookie", "failing task", "failing callback")
"""Classes of `faults.py` that only overloaded schedules have."""

_REQUEST_BYTES, _REQUESTS_MIN = 2_500, 3
"""About what a Produce request counts for, and how many may be under way at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What overloads the cluster of a schedule."""

    is_all: bool
    """Whether nothing else happens to it."""
    rude_clients: int
    """Clients that do not read what they ask for, send halves, or leave without a word."""
    produce_timeout_ms: int
    """Timeout of Produce requests: what is not confirmed by then is answered as such."""
    broker_bytes_max: int
    """Unanswered request bytes of a broker, and half of it those of a connection."""
    connection_requests_max: int
    unsent_bytes_max: int
    """Unsent bytes of a connection's answers, and of one answer to a fetch."""
    unanswered_bytes_max: int
    """What a writer of a ledger may have at bookies, the confirmed entries too."""


def kind_of(seed: int) -> str:
    """Return which kind of cluster schedules a seed stands for."""
    drawn = random.Random(f"cluster kind {seed}").choices(list(KINDS), list(KINDS.values()))
    return drawn[0]


def draw_load(rng: random.Random, kind: str, room_bytes: int) -> LoadOptions:
    """Draw how a schedule of a kind is overloaded; its partitions have room for `room_bytes`."""
    return LoadOptions(
        is_all=kind == "busy",
        rude_clients=rng.choice((1, 1, 2)),
        produce_timeout_ms=rng.choice((150, 300, 2000)),
        broker_bytes_max=room_bytes * rng.choice((1, 1, 2)) + _REQUESTS_MIN * _REQUEST_BYTES,
        connection_requests_max=rng.choice((3, 50)),
        unsent_bytes_max=rng.choice((1000, 4000)),
        unanswered_bytes_max=room_bytes // 2 * rng.choice((1, 2)),
    )
