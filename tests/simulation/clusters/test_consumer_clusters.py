"""Whole clusters with a group of the consumer protocol."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation import batch
from tests.simulation.clusters import swarm


def seeds(count: int) -> list[int]:
    return [seed for seed in range(40 * count) if swarm.is_consumed(seed)][:count]


def test_some_mixed_schedules_have_such_a_group_and_are_else_what_they_were() -> None:
    found = [seed for seed in range(1000) if swarm.is_consumed(seed)]
    assert 25 < len(found) < 80
    for seed in found:
        plan = swarm.draw(seed)
        assert plan.admin is plan.secured is plan.transactions is plan.load is plan.compaction
        plain = dataclasses.replace(
            swarm._draw_any(seed), consumers=plan.consumers, common=plan.common
        )
        if plan.nearby is None:
            assert plan == plain


@pytest.mark.slow
def test_the_group_comes_together() -> None:
    total = batch.run_clean(batch.Job(world="cluster", seeds=seeds(10)))
    assert total["consumers: joins"] > 25
    assert total["consumers: commits"] > 80
    assert total["consumers: logs compared"] > 10
    assert total["consumers: members left"] > 5
    assert total["consumers: topic grown"] > 5
