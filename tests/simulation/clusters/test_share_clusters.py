"""Whole clusters with share groups."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation import batch
from tests.simulation.clusters import swarm


def seeds(count: int) -> list[int]:
    return [seed for seed in range(60 * count) if swarm.is_shared(seed)][:count]


def test_some_mixed_schedules_have_such_groups_and_are_else_what_they_were() -> None:
    found = [seed for seed in range(1000) if swarm.is_shared(seed)]
    assert 25 < len(found) < 80
    for seed in found:
        plan = swarm.draw(seed)
        assert plan.admin is plan.secured is plan.transactions is plan.load is plan.consumers
        plain = dataclasses.replace(swarm._draw_any(seed), shares=plan.shares, common=plan.common)
        if plan.nearby is None:
            assert plan == plain


@pytest.mark.slow
def test_everything_is_settled() -> None:
    total = batch.run_clean(batch.Job(world="cluster", seeds=seeds(10)))
    assert total["shares: deliveries"] > 100
    assert total["shares: records settled"] > 100
    assert total["shares: windows looked at"] > 50
    assert total["shares: partitions judged"] > 5
