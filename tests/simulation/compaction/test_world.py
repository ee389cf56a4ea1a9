"""A few schedules of a compacted partition, and what they must have met to mean anything."""

from __future__ import annotations

import pytest

from tests.simulation import batch
from tests.simulation.compaction import plan as compaction_plan
from tests.simulation.compaction import world as compaction_world


def run(seeds: range) -> dict[str, int]:
    """Run schedules; return what they have met, all together."""
    return batch.run_clean(batch.Job(world="compaction", seeds=seeds))


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
