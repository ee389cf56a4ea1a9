"""A few schedules of a compacted partition, and what they must have met to mean anything."""

from __future__ import annotations

import pytest

from tests.simulation import batch, compaction_plan, compaction_world


def run(seeds: range) -> dict[str, int]:
    """Run schedules; return what they have met, all together."""
    results = batch.run(batch.Job(world="compaction", seeds=seeds))
    assert [(r.seed, r.violation) for r in results if r.violation] == []
    total: dict[str, int] = {}
    for result in results:
        for name, count in {**result.counts, **result.faults}.items():
            total[name] = total.get(name, 0) + count
    return total


def test_the_invariants_hold_in_a_few_schedules() -> None:
    total = run(range(8))
    assert total["readers"] > 400
    assert total["swaps"] > 80


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    total = run(range(8, 120))
    assert total["takeover"] > 200
    assert total["break off"] > 500
    assert total["swaps"] > 1500
    assert total["trims"] > 50
    assert total["compaction removed_records"] > 1500


def test_a_seed_is_a_schedule() -> None:
    first, again = (compaction_world.run_schedule(5) for _ in range(2))
    assert (first.digest, first.steps) == (again.digest, again.steps)
    assert compaction_plan.draw(7) == compaction_plan.draw(7) != compaction_plan.draw(8)
