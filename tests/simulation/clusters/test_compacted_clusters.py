"""A few schedules of whole clusters with a compacted topic, and what they must have met."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.simulation import batch
from tests.simulation.clusters import load as cluster_load
from tests.simulation.clusters import swarm as cluster_swarm

if TYPE_CHECKING:
    from collections.abc import Sequence


def compacted(first: int, count: int) -> list[int]:
    """Return so many seeds of such schedules, from the first one on."""
    seeds = (seed for seed in itertools.count() if cluster_swarm.kind_of(seed) == "compacted")
    return list(itertools.islice(seeds, first, first + count))


def run(seeds: Sequence[int]) -> dict[str, int]:
    """Run schedules; return what they have met, all together."""
    return batch.run_clean(batch.Job(world="cluster", seeds=seeds))


def test_the_invariants_hold_in_a_few_schedules() -> None:
    total = run(compacted(0, 4))
    assert total["swaps"] > 40
    assert total["records missed by readers"] > 40
    assert total["readers that began anew"] > 10


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    total = run(compacted(2, 28))
    assert total["swaps"] > 120
    assert total["records missed by readers"] > 500
    assert total["takeovers"] > 60
    assert total["orphan ledgers"] > 4
    assert total["slow link"] > 8


def test_other_schedules_draw_what_they_drew_before() -> None:
    kinds = [cluster_swarm.kind_of(seed) for seed in range(1500)]
    assert 150 < kinds.count("compacted") < 250
    for seed, kind in enumerate(kinds):
        assert kind in (cluster_load.kind_of(seed), "compacted", "contended")
        assert (cluster_swarm.draw(seed).compaction is None) == (kind != "compacted")
