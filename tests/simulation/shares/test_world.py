"""A few schedules of share groups, and what they must have met."""

from __future__ import annotations

import pytest

from tests.simulation import batch, coverage
from tests.simulation.mutants import shares
from tests.simulation.shares import plan as share_plan
from tests.simulation.shares import world as share_world


def test_the_invariants_hold_in_a_few_schedules() -> None:
    total = batch.run_clean(batch.Job(world="shares", seeds=range(4)))
    assert total["deliveries"] > 100
    assert total["records settled"] > 100
    assert total["windows looked at"] > 50
    assert total["partitions judged"] >= 3


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    seeds = range(4, 34)
    total = batch.run_clean(batch.Job(world="shares", seeds=seeds))
    few = {
        name: total.get(name, 0)
        for name, least in coverage.SHARE_EVENTS.items()
        if total.get(name, 0) < least * len(seeds)
    }
    assert few == {}
    assert [name for name in share_world.FAULTS if not total.get(name)] == []


def test_a_seed_is_a_schedule() -> None:
    first, again = (share_world.run_schedule(4) for _ in range(2))
    assert (first.digest, first.steps) == (again.digest, again.steps)
    assert share_plan.draw(7) == share_plan.draw(7) != share_plan.draw(8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("lent-to-two", ("S2", "S4", "S7")),
        ("locks-pass-early", ("S2", "S4", "S6")),
        ("markers-are-records", ("S9",)),
        ("counts-are-not-stored", ("S4",)),
        ("settled-records-take-room", ("S8",)),
    ],
)
def test_rules_are_broken_by_planted_defects(name: str, rules: tuple[str, ...]) -> None:
    assert name in shares.PLANTS
    job = batch.Job(world="shares", seeds=range(12), mutant=name, stop_at_violation=True)
    assert batch.run(job)[-1].violation.startswith(rules)
