"""A few schedules of whole clusters, and what they must have met to mean anything."""

from __future__ import annotations

import pytest

from tests.simulation import batch
from tests.simulation.bookies import machines
from tests.simulation.clusters import swarm as cluster_swarm
from tests.simulation.clusters.world import ClusterWorld


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    results = batch.run(batch.Job(world="cluster", seeds=range(30)))
    assert [(r.seed, r.violation) for r in results if r.violation] == []

    def total(name: str) -> int:
        return sum(result.counts.get(name, 0) for result in results)

    assert sum(sum(r.faults.values()) for r in results) > 100
    assert total("batches acknowledged") > 300
    assert total("records consumed") > 300
    assert total("takeovers") > 60
    assert total("rolls") > 10
    assert total("trims") > 5


def test_when_all_is_quiet_leaders_that_are_named_take_what_is_produced() -> None:
    named = 0
    for seed in range(8):
        plan = cluster_swarm.quiet(seed)
        result = machines.run(ClusterWorld(plan, log=False), plan)
        assert not result.violation, f"seed {seed}: {result.violation}"
        named += result.counts["leaders named"]
    assert named > 16


def test_options_are_drawn_from_the_seed_alone() -> None:
    assert cluster_swarm.draw(7) == cluster_swarm.draw(7)
    assert cluster_swarm.draw(7) != cluster_swarm.draw(8)
    assert "segment_bytes" in cluster_swarm.draw(7).describe()
    assert "fault_phase_s" in cluster_swarm.draw(7).describe()
