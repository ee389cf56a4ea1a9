"""A few schedules of transactions alone, and what they must have met to mean anything."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import batch, coverage, results_page
from tests.simulation.mutants.table import Patch
from tests.simulation.mutants.transaction_appends import (
    open_without_limit,
    verified_before_the_epoch,
)
from tests.simulation.mutants.transaction_markers import snapshot_forgets_coordinators
from tests.simulation.mutants.transaction_reads import (
    aborted_list_reaches_back,
    index_ends_with_its_segment,
)
from tests.simulation.mutants.transactions import init_retry_is_fenced
from tests.simulation.transactions import plan as transaction_plan
from tests.simulation.transactions import world as transaction_world


def run(seeds: range) -> dict[str, int]:
    """Run schedules; return what they have met, all together."""
    return batch.run_clean(batch.Job(world="transactions", seeds=seeds))


def test_the_invariants_hold_in_a_few_schedules() -> None:
    total = run(range(8))
    assert total["commits"] > 50
    assert total["markers"] > 100


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    seeds = range(8, 130)
    total = run(seeds)
    wanted = coverage.TRANSACTION_EVENTS
    few = {
        name: total.get(name, 0)
        for name, least in wanted.items()
        if total.get(name, 0) < least * len(seeds)
    }
    assert few == {}
    assert [name for name in transaction_world.FAULTS if not total.get(name)] == []


def test_every_invariant_is_broken_by_a_planted_defect() -> None:
    rows = results_page.rows("Mutants")
    found = {what for _, where, *_, what in rows if where.startswith(("transactions", "cluster"))}
    assert {f"X{number}" for number in range(1, 15)} <= found


def test_rare_moments_have_their_shares() -> None:
    kinds = Counter(transaction_plan.kind_of(seed) for seed in range(2000))
    assert 700 < kinds.pop("") < 800, "drawn from everywhere"
    assert len(kinds) == 10
    assert min(kinds.values()) > 60


def test_a_seed_is_a_schedule() -> None:
    first, again = (transaction_world.run_schedule(5) for _ in range(2))
    assert (first.digest, first.steps) == (again.digest, again.steps)
    assert transaction_plan.draw(7) == transaction_plan.draw(7) != transaction_plan.draw(8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (init_retry_is_fenced, "X12"),
        (verified_before_the_epoch, "X7"),
        (aborted_list_reaches_back, "X5"),
        (snapshot_forgets_coordinators, "X6"),
        (index_ends_with_its_segment, "X13"),
        (open_without_limit, "X14"),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_rule_that_is_missing_is_noticed(plant: object, rule: str) -> None:
    assert callable(plant)
    patch = Patch()
    plant(patch)
    try:
        for seed in range(100):
            violation = transaction_world.run_schedule(seed).violation
            if violation:
                assert violation.startswith(rule)
                return
    finally:
        patch.undo()
    raise AssertionError("nobody noticed")
