"""What one schedule of transactions alone is like: its options, drawn from its seed.

More than a third of the schedules are drawn from everywhere; the others aim at one rare moment each
(`focus`), by making what leads to it frequent and leaving out what would end a transaction before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from broker.coordinator.core.routing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.transactions.core.transaction import EPOCH_LAST, TransactionConfig

TOPIC: Final = "t"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    """Options of one schedule, drawn from its seed."""

    nodes: int
    partitions: int
    writers: int
    readers: int
    generations: tuple[int, ...]
    """Which protocols clients speak: 1 (TV1), 2 (KIP-890, TV2)."""
    seconds: float
    """How long there are faults."""
    timeout_ms: int
    """Of transactions."""
    abort_p: float
    blind_p: float
    """How often a client aborts without waiting for the answers to its batches."""
    blind_late_s: float
    """Mean time that such batches are late."""
    open_s: float
    """Mean time a client works between its last batch and the end of its transaction."""
    silence_p: float
    offsets_p: float
    offsets_only_p: float
    late_p: float
    late_s: float
    lost_p: float
    patience_s: float
    """How long a client waits for an answer before it asks over another connection."""
    restless_p: float
    """How often it asks over another connection without a reason."""
    wrong_p: float
    """How often it connects to any broker, and not to the leader."""
    gap_s: float
    """Mean time between requests that are sent without waiting."""
    plain_p: float
    """How often somebody commits an offset of a writer's group without a transaction."""
    deleted_p: float
    """How often a transaction has a partition of a topic that was deleted and made again."""
    zombie_p: float
    think_s: float
    records_max: int
    move_s: float
    """Mean time between takeovers."""
    unaware_p: float
    """How often the leader that is replaced does not know it."""
    unaware_s: float
    stale_s: float
    """How long brokers take to hear of a new leader."""
    kill_p: float
    cut_s: float
    lane_late_p: float
    message_late_p: float
    roll_p: float
    trouble: str
    """What is moved most (`WEIGHTS`)."""
    sweep_ms: int
    expiration_ms: int
    """Of transactional ids that nobody uses."""
    producers_max: int
    """Producers that a partition remembers."""
    open_max: int
    """Transactions that may be open in a partition."""
    held_bytes: int
    """What may be held there."""
    room_bytes: int
    """What may be on its way to the ledgers of a partition."""
    first_epoch: int
    """Where the epochs of ids begin."""
    log_copy_bytes: int
    snapshot_entries: int
    block_entries: int
    focus: str = ""
    """Which rare moment it aims at."""

    def describe(self) -> str:
        """Return the options, one per line."""
        return "\n".join(f"  {f.name} = {getattr(self, f.name)}" for f in fields(self))

    def coordination(self) -> TransactionConfig:
        """Return the settings of coordinators."""
        return TransactionConfig(
            timeout_interval_ms=self.sweep_ms,
            transactional_id_expiration_ms=self.expiration_ms,
            expiry_interval_ms=300,
            parked_ms_max=300,
            parked_requests_max=2,
            retry_ms=20,
        )


_CALM: Final[dict[str, Any]] = {
    "late_p": 0.0,
    "silence_p": 0.0,
    "zombie_p": 0.0,
    "kill_p": 0.0,
    "plain_p": 0.0,
    "timeout_ms": 10_000,
    "expiration_ms": 1_000_000,
    "producers_max": 20_000,
    "open_max": 5_000,
    "held_bytes": 1 << 24,
    "room_bytes": 1 << 26,
    "first_epoch": 0,
}
"""What most rare moments need: that nothing else ends the transaction before."""
_FOCUSES: Final[dict[str, dict[str, Any]]] = {
    "stale coordinators": {
        "generations": (1,), "trouble": "coordinator", "abort_p": 0.1, "move_s": 0.2,
        "unaware_p": 0.9, "unaware_s": 0.4, "wrong_p": 0.5, "restless_p": 0.3, "lost_p": 0.05,
        "lane_late_p": 0.0, "message_late_p": 0.0, "cut_s": 1e9, "nodes": 2,
    },
    "late markers": {
        "generations": (1,), "trouble": "leader", "abort_p": 0.3, "move_s": 0.3, "writers": 1,
        "partitions": 1, "message_late_p": 0.3, "late_s": 0.6, "lane_late_p": 0.0, "nodes": 2,
        "unaware_p": 0.2, "think_s": 0.0, "stale_s": 0.005,
    },
    "late questions": {
        "generations": (1,), "trouble": "leader", "abort_p": 0.6, "blind_p": 1.0, "move_s": 1.0,
        "lane_late_p": 0.5, "message_late_p": 0.2, "late_s": 0.2, "records_max": 4,
        "gap_s": 0.003, "unaware_p": 0.2,
    },
    "refused batches": {
        "records_max": 4, "gap_s": 0.03, "held_bytes": 2_500, "writers": 2, "open_max": 1,
        "partitions": 1, "abort_p": 0.1, "move_s": 1.0, "lane_late_p": 0.5, "generations": (1,),
    },
    "copies": {
        "log_copy_bytes": 1_000, "offsets_p": 0.6, "trouble": "both", "move_s": 0.2,
        "message_late_p": 0.2, "late_s": 0.2, "writers": 2, "plain_p": 0.1,
    },
}  # fmt: skip
"""Rare moments, and what makes them less so."""
_RACES: Final[dict[str, dict[str, Any]]] = {
    # A marker of an old session comes to a broker that has led nothing since, and leads again.
    "stray markers": {
        "generations": (1,), "trouble": "partition", "move_s": 0.25, "nodes": 2, "writers": 1,
        "partitions": 1, "abort_p": 0.3, "blind_p": 0.0, "open_s": 0.15, "think_s": 0.0,
        "message_late_p": 0.3, "late_s": 0.6, "lane_late_p": 0.0, "unaware_p": 0.2,
        "stale_s": 0.005, "offsets_p": 0.0, "cut_s": 1e9,
    },
    # A batch comes behind the abort of its transaction, and asks a coordinator that is none.
    "vouching zombies": {
        "generations": (1,), "trouble": "coordinator", "move_s": 0.4, "nodes": 2, "writers": 1,
        "partitions": 1, "abort_p": 0.6, "blind_p": 1.0, "blind_late_s": 0.4, "think_s": 0.3,
        "open_s": 0.15, "unaware_p": 1.0, "unaware_s": 0.5, "message_late_p": 0.0,
        "lane_late_p": 0.0, "offsets_p": 0.0, "wrong_p": 0.05, "cut_s": 1e9, "held_bytes": 1 << 24,
    },
    # The log of groups is copied, and has a new leader, while offsets are pending.
    "copies of the pending": {
        "trouble": "groups", "move_s": 0.2, "writers": 2, "log_copy_bytes": 1_000,
        "offsets_p": 0.9, "open_s": 0.15, "think_s": 0.0, "abort_p": 0.1, "message_late_p": 0.0,
        "lane_late_p": 0.0, "cut_s": 1e9, "unaware_p": 0.2,
    },
    # Partitions remember fewer producers than have transactions open in them. No marker is sent
    # twice: of a producer that was forgotten it would be news, and the log without its sequence.
    "forgotten producers": {
        "generations": (1,), "producers_max": 2, "writers": 4, "partitions": 1, "records_max": 4,
        "gap_s": 0.02, "lost_p": 0.1, "open_s": 0.05, "think_s": 0.0, "abort_p": 0.2,
        "blind_p": 0.0, "restless_p": 0.0, "offsets_p": 0.0, "move_s": 0.4, "roll_p": 1.0,
        "held_bytes": 2_500, "message_late_p": 0.0, "lane_late_p": 0.0, "cut_s": 1e9,
    },
    # Batches come so late that their producer's window has forgotten them.
    "late batches": {
        "generations": (1,), "writers": 1, "partitions": 1, "records_max": 4, "gap_s": 0.0,
        "late_p": 0.3, "late_s": 0.1, "think_s": 0.01, "open_s": 0.0, "abort_p": 0.1,
        "blind_p": 0.0, "message_late_p": 0.3, "lane_late_p": 0.2, "move_s": 2.0,
        "lost_p": 0.0, "offsets_p": 0.0, "cut_s": 1e9,
    },
}  # fmt: skip
"""Races that need several rare things at once; a quarter of the schedules run one."""
WEIGHTS: Final[dict[str, dict[str, float]]] = {
    "coordinator": {TRANSACTIONS_TOPIC: 0.7},
    "leader": {TRANSACTIONS_TOPIC: 0.15},
    "both": {TRANSACTIONS_TOPIC: 0.4},
    "groups": {TRANSACTIONS_TOPIC: 0.05, OFFSETS_TOPIC: 0.9},
    "partition": {TRANSACTIONS_TOPIC: 0.0, OFFSETS_TOPIC: 0.0, TOPIC: 0.95},
}
"""What is moved how often, by kind of trouble; else any partition is."""


def draw(seed: int) -> TransactionPlan:
    """Draw the options of a schedule."""
    rng = random.Random(f"transactions {seed}")
    drawn = _draw_any(rng)
    aim = random.Random(f"transactions race {seed}")
    if aim.random() < 0.25:
        focus, more = aim.choice([*_RACES.items()])
    elif rng.random() < 0.5:
        return drawn
    else:
        focus, more = rng.choice([*_FOCUSES.items()])
    return replace(drawn, focus=focus, **{**_CALM, **more})


def kind_of(seed: int) -> str:
    """Return which rare moment a schedule aims at; empty: none."""
    return draw(seed).focus


def _draw_any(rng: random.Random) -> TransactionPlan:
    return TransactionPlan(
        nodes=rng.choice((2, 3, 3)),
        partitions=rng.choice((1, 1, 2)),
        writers=rng.choice((1, 1, 2)),
        readers=rng.choice((0, 1)),
        generations=rng.choice(((1,), (1,), (2,), (1, 2))),
        seconds=rng.choice((3.0, 6.0)),
        timeout_ms=rng.choice((600, 3_000, 10_000)),
        abort_p=rng.choice((0.1, 0.3, 0.6)),
        blind_p=rng.choice((0.0, 0.5, 1.0)),
        blind_late_s=0.0,
        open_s=0.0,
        silence_p=rng.choice((0.0, 0.0, 0.1)),
        offsets_p=rng.choice((0.0, 0.3, 0.6)),
        offsets_only_p=rng.choice((0.0, 0.1)),
        late_p=rng.choice((0.0, 0.05, 0.2)),
        late_s=rng.choice((0.05, 0.2, 0.6)),
        lost_p=rng.choice((0.0, 0.05, 0.2)),
        patience_s=rng.choice((0.1, 0.3)),
        restless_p=rng.choice((0.0, 0.1, 0.3)),
        wrong_p=rng.choice((0.05, 0.2, 0.5)),
        gap_s=rng.choice((0.0, 0.003, 0.03)),
        plain_p=rng.choice((0.0, 0.0, 0.1)),
        deleted_p=rng.choice((0.0, 0.2)),
        zombie_p=rng.choice((0.0, 0.0, 0.1)),
        think_s=rng.choice((0.0, 0.01, 0.05)),
        records_max=rng.choice((1, 2, 4)),
        move_s=rng.choice((0.1, 0.3, 1.0)),
        unaware_p=rng.choice((0.2, 0.5, 0.9)),
        unaware_s=rng.choice((0.1, 0.4, 1.0)),
        stale_s=rng.choice((0.005, 0.05, 0.3)),
        kill_p=rng.choice((0.0, 0.1)),
        cut_s=rng.choice((0.5, 2.0, 1e9)),
        lane_late_p=rng.choice((0.0, 0.2, 0.5)),
        message_late_p=rng.choice((0.0, 0.05, 0.2)),
        roll_p=rng.choice((0.0, 0.3)),
        trouble=rng.choice(("coordinator", "leader", "both")),
        sweep_ms=rng.choice((100, 300)),
        expiration_ms=rng.choice((400, 1_000, 1_000_000)),
        producers_max=rng.choice((2, 20_000)),
        open_max=rng.choice((1, 5_000, 5_000)),
        held_bytes=rng.choice((1_300, 2_500, 1 << 24)),
        room_bytes=rng.choice((300, 1 << 26, 1 << 26)),
        first_epoch=rng.choice((0, 0, EPOCH_LAST - 6)),
        log_copy_bytes=rng.choice((1_000, 3_000, 1 << 20)),
        snapshot_entries=rng.choice((3, 8, 64)),
        block_entries=rng.choice((1, 2, 1_000)),
    )
