"""Overload: busy nodes fail nobody, hold no more than they may, and answer in time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.simulation import batch
from tests.simulation.clusters import load as cluster_load
from tests.simulation.clusters import swarm as cluster_swarm

if TYPE_CHECKING:
    from tests.simulation.result import Result

_FULL = ("looks at full links", "looks at full partitions", "looks at full brokers")


def run(kind: str, count: int) -> list[Result]:
    """Run the first schedules of a kind."""
    seeds = [seed for seed in range(60 * count) if cluster_load.kind_of(seed) == kind][:count]
    return batch.run(batch.Job(world="cluster", seeds=seeds))


def total(results: list[Result], name: str) -> int:
    return sum(result.counts.get(name, 0) for result in results)


@pytest.mark.slow
def test_a_busy_cluster_fails_nobody_and_answers_in_time() -> None:
    results = run("busy", 16)
    assert [(r.seed, r.violation) for r in results if r.violation] == []
    assert {name for r in results for name in r.faults} == {"slow link", "slow bookie"}
    for name in _FULL:
        assert total(results, name) > 50, name
    assert total(results, "appends timed out") > 3
    assert total(results, "batches acknowledged") > 500


@pytest.mark.slow
def test_what_else_may_happen_happens_to_crowded_clusters() -> None:
    results = run("crowded", 10)
    assert [(r.seed, r.violation) for r in results if r.violation] == []
    assert {"slow link", "slow bookie", "kill broker"} <= {n for r in results for n in r.faults}
    for name in (*_FULL, "clients that stalled", "clients that sent halves"):
        assert total(results, name) > 5, name


def test_kinds_have_their_shares() -> None:
    kinds = Counter(cluster_load.kind_of(seed) for seed in range(4000))
    assert sum(cluster_load.KINDS.values()) == 100
    for name, percent in cluster_load.KINDS.items():
        assert abs(kinds[name] / 40 - percent) < 2, name


def test_only_overloaded_schedules_are_overloaded() -> None:
    for seed in range(200):
        load, kind = cluster_swarm.draw(seed).load, cluster_load.kind_of(seed)
        assert (load is not None) == (kind not in ("mixed", "transactions"))
        if load is not None:
            assert load.is_all == (kind == "busy")


def test_in_a_busy_schedule_nothing_happens_but_slowness() -> None:
    plans = [cluster_swarm.draw(s) for s in range(400) if cluster_load.kind_of(s) == "busy"]
    for plan in plans:
        common = plan.common
        assert set(common.faults) == {"slow link", "slow bookie"}
        assert not common.ambush_p
        assert not common.net.tail_p
        assert not common.store.lose_request_p
        assert not common.client
