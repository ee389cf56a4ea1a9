"""A few schedules of clusters that are administered, and what they must have met."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.simulation import batch
from tests.simulation.clusters import swarm as cluster_swarm
from tests.simulation.clusters.contended_load import KIND
from tests.simulation.clusters.newer_release import FIELD, SETTING, understood, written
from tests.simulation.clusters.spoiled_nodes import is_spoiled

if TYPE_CHECKING:
    from collections.abc import Sequence


def administered(first: int, count: int) -> list[int]:
    """Return so many seeds of such schedules, from the first one on."""
    seeds = (seed for seed in itertools.count() if cluster_swarm.is_administered(seed))
    return list(itertools.islice(seeds, first, first + count))


def run(seeds: Sequence[int]) -> dict[str, int]:
    """Run schedules; return what they have met, all together."""
    return batch.run_clean(batch.Job(world="cluster", seeds=seeds))


def test_the_invariants_hold_in_a_few_schedules() -> None:
    total = run(administered(0, 6))
    assert total["topics made anew"] > 5
    assert total["topics deleted"] > 3
    assert total["admin: records acknowledged"] > 5


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    total = run(administered(6, 40))
    assert total["topics made anew"] > 30
    assert total["topics deleted"] > 15
    assert total["admin: outcome unknown"] > 20
    assert total["admin: configure"] > 20
    assert total["admin: grow"] > 5
    assert total["admin: revoke"] > 30
    assert total["admin: offsets committed"] > 20
    assert total["disturbed in a change"] > 20
    assert total["facts of a newer release"] > 5


def contended(count: int) -> list[int]:
    """Return so many seeds of schedules in which operators contend, from the first one on."""
    seeds = (seed for seed in itertools.count() if cluster_swarm.kind_of(seed) == KIND)
    return list(itertools.islice(seeds, count))


def test_the_invariants_hold_where_operators_contend() -> None:
    total = run(contended(12))
    assert total["admin: outcome unknown"] > 15
    assert total["topics made anew"] > 10
    assert total["late writes"] > 40
    assert total["reads of the past"] > 10
    assert total["spoiled node"] > 5


@pytest.mark.slow
def test_the_invariants_hold_where_operators_contend_for_long() -> None:
    total = run(contended(120))
    assert total["failing request"] > 10
    assert total["failing effect"] > 10
    assert total["registrations of a later format"] > 10
    assert total["topics that cannot be read"] > 50


def test_all_that_contend_have_operators_and_servers_that_lag() -> None:
    plans = [cluster_swarm.draw(seed) for seed in contended(40)]
    assert all(plan.admin is not None for plan in plans)
    assert all(plan.common.store.lag is not None for plan in plans)
    assert all(plan.secured is None and plan.compaction is None for plan in plans)


def test_a_node_is_spoiled_whose_format_is_unknown_or_that_is_no_json() -> None:
    assert is_spoiled(b"edited by hand")
    assert is_spoiled(b'{"version": 2}')
    assert not is_spoiled(b'{"version": 1}')


def test_some_have_a_broker_of_a_newer_release() -> None:
    plans = [cluster_swarm.draw(seed) for seed in range(800)]
    found = [plan.admin for plan in plans if plan.admin is not None]
    assert 60 < len(found) < 200
    assert 0.2 < sum(one.has_newer for one in found) / len(found) < 0.6
    assert all(plan.secured is None for plan in plans if plan.admin is not None)


def test_a_newer_release_writes_what_others_do_not_know() -> None:
    topic = written("/quire/topics/a0", b'{"configs":{}}')
    assert SETTING.encode() in topic
    assert FIELD.encode() in topic
    broker = written("/quire/brokers/1", b'{"endpoints":{}}')
    assert b"QUIC" in broker
    assert understood("/quire/brokers/1", broker) == b'{"endpoints": {}}'
    assert written("/quire/partitions/x/0", b"{}") == b"{}"
