"""What one schedule of share groups alone is like: its options, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

from tests.simulation.kafka.share_book import Terms
from tests.simulation.kafka.share_clients import ShareLoad
from tests.simulation.kafka.share_member import ShareOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePlan:
    """Options of one schedule."""

    seed: int
    load: ShareLoad
    segment_bytes: int
    snapshot_bytes: int
    fault_s: float
    fault_every_s: float
    """How often something fails; 0: never."""
    leave_weight: int
    """How often members leave, among the faults."""
    ledger_s: float
    """Mean time of an entry's way to its ledger, and of the answer's way back."""

    def describe(self) -> str:
        """Return the options, one per line."""
        return "\n".join(f"  {one.name} = {getattr(self, one.name)}" for one in fields(self))


_COMPACTED_P = 0.2
_KINDS = {"calm": 25, "moving": 25, "": 50}


def kind_of(seed: int) -> str:
    """Return which kind of schedule a seed stands for: `calm`, nothing fails, and members do what
    they like; `moving`, leaders change all the time, and no answer is lost; empty: neither."""
    return random.Random(f"shares kind {seed}").choices(list(_KINDS), list(_KINDS.values()))[0]


def draw(seed: int) -> SharePlan:
    """Draw the options of a schedule."""
    rng, kind = random.Random(f"shares {seed}"), kind_of(seed)
    plan = SharePlan(
        seed=seed,
        load=draw_load(rng),
        segment_bytes=rng.choice((1_000, 4_000, 1 << 20)),
        snapshot_bytes=rng.choice((300, 2_000, 1 << 22)),
        fault_s=rng.choice((5.0, 10.0)),
        fault_every_s=rng.choice((0.7, 1.5, 3.0)),
        leave_weight=rng.choice((1, 3)),
        ledger_s=rng.choice((0.005, 0.02, 0.1)),
    )
    if rng.random() < _COMPACTED_P:
        load = replace(plan.load, keys=rng.choice((1, 3)), batch_records_max=6)
        plan = replace(plan, load=load, segment_bytes=600)
    if not kind:
        return plan
    load = plan.load
    share = replace(load.share, vanish_p=0.0, lose_p=0.0)
    if kind == "calm":
        return replace(plan, load=replace(load, share=share, trim_every_s=0.0), fault_every_s=0.0)
    load = replace(load, share=share, trim_every_s=0.0, order_every_s=0.0)
    return replace(plan, load=load, fault_every_s=0.7)


def draw_load(rng: random.Random) -> ShareLoad:
    """Draw the groups, and what they are given."""
    return ShareLoad(
        members=rng.choice((2, 3, 3)),
        groups=rng.choice((1, 1, 2)),
        partitions=rng.choice((1, 1, 2)),
        terms=Terms(rng.choice((1.0, 1.0, 2.0)), rng.choice((2, 3, 5)), rng.random() < 0.6),
        window_max=rng.choice((5, 12, 100)),
        is_earliest=rng.random() < 0.8,
        share=ShareOptions(
            work_s=rng.choice((0.02, 0.1, 0.4)),
            records_max=rng.choice((1, 3, 10, 500)),
            strict_p=rng.choice((0.0, 0.3, 1.0)),
            release_p=rng.choice((0.0, 0.1, 0.3)),
            reject_p=rng.choice((0.0, 0.05, 0.2)),
            renew_p=rng.choice((0.0, 0.1, 0.3)),
            keep_p=rng.choice((0.0, 0.05, 0.2)),
            forget_p=rng.choice((0.0, 0.03, 0.1)),
            vanish_p=rng.choice((0.0, 0.01, 0.05)),
            lose_p=rng.choice((0.0, 0.01, 0.05)),
            bad_p=rng.choice((0.0, 0.1, 0.3)),
            alone_p=rng.choice((0.1, 0.5)),
        ),
        session_s=3.0,
        heartbeat_s=0.3,
        writers=rng.choice((1, 1, 2)),
        transactional=rng.choice((0, 1, 1)),
        abort_p=rng.choice((0.2, 0.5)),
        batch_records_max=rng.choice((1, 3, 6)),
        think_s=rng.choice((0.1, 0.3, 0.6)),
        trim_every_s=rng.choice((0.0, 0.0, 2.0)),
        order_every_s=rng.choice((0.0, 0.0, 4.0)),
    )
