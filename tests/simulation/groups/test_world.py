"""A few schedules of a group of the consumer protocol, and what they must have met."""

from __future__ import annotations

import pytest

from tests.simulation import batch, coverage
from tests.simulation.groups import plan as group_plan
from tests.simulation.groups import world as group_world
from tests.simulation.mutants import consumer_groups


def test_the_invariants_hold_in_a_few_schedules() -> None:
    total = batch.run_clean(batch.Job(world="groups", seeds=range(6)))
    assert total["joins"] > 30
    assert total["partitions taken over"] > 150
    assert total["logs compared"] > 40


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    seeds = range(6, 106)
    total = batch.run_clean(batch.Job(world="groups", seeds=seeds))
    few = {
        name: total.get(name, 0)
        for name, least in coverage.GROUP_EVENTS.items()
        if total.get(name, 0) < least * len(seeds)
    }
    assert few == {}
    assert [name for name in group_world.FAULTS if not total.get(name)] == []


def test_a_seed_is_a_schedule() -> None:
    first, again = (group_world.run_schedule(3) for _ in range(2))
    assert (first.digest, first.steps) == (again.digest, again.steps)
    assert group_plan.draw(7) == group_plan.draw(7) != group_plan.draw(8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("given-before-release", ("H1",)),
        ("previous-epoch-is-fenced", ("H7",)),
        ("stale-epoch-commits", ("H4",)),
        ("lost-answers-are-not-repeated", ("H1", "H3", "H4", "H7")),
        ("copies-leave-the-busy-out", ("H5",)),
    ],
)
def test_rules_are_broken_by_planted_defects(name: str, rules: tuple[str, ...]) -> None:
    assert name in consumer_groups.PLANTS
    job = batch.Job(world="groups", seeds=range(12), mutant=name, stop_at_violation=True)
    assert batch.run(job)[-1].violation.startswith(rules)
