"""A few schedules of the real ledger layer, and the oracle's proof that it can see.

`make sim-short` runs them by the thousand, `make mutants` hunts every planted defect. Here those
are hunted that the table of `RESULTS.md` says fall at once: seconds for half of the oracle.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import batch, results_page
from tests.simulation.bookies import swarm
from tests.simulation.mutants.table import PLANTS, planted
from tests.simulation.mutation import Task, hunt

AT_ONCE = 10
"""Schedules within which an easy mutant was found."""
PATIENCE = 400
"""Schedules within which it is found whatever else has changed since."""


def easy() -> dict[str, int]:
    """Return the mutants that a handful of schedules found when all were hunted last, and which
    seed it was."""
    rows = results_page.rows("Mutants")
    return {name: int(seed) for name, _, _, count, _, seed, _ in rows if int(count) <= AT_ONCE}


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    results = batch.run(batch.Job(world="ledger", seeds=range(30)))
    assert [(r.seed, r.violation) for r in results if r.violation] == []
    assert sum(sum(r.faults.values()) for r in results) > 100
    assert sum(r.counts.get("adds", 0) for r in results) > 100
    assert sum(r.counts.get("recoveries", 0) for r in results) > 30


@pytest.mark.slow
@pytest.mark.parametrize(("name", "known_seed"), easy().items())
def test_the_oracle_sees_a_planted_defect(name: str, known_seed: int) -> None:
    assert hunt(Task(name, 0, PATIENCE, known_seed)).violation


def test_the_seed_that_found_it_last_is_tried_first() -> None:
    name = "ack-before-sync"
    found = hunt(Task(name, 4, PATIENCE))
    assert found.schedules > 1
    again = hunt(Task(name, 4, PATIENCE, known_seed=found.seed))
    assert (again.schedules, again.seed) == (1, found.seed)
    assert hunt(Task(name, 4, PATIENCE, known_seed=4)).seed == found.seed  # 4 does not show it


def test_many_mutants_are_easy() -> None:
    assert len(easy()) >= 30


def test_every_mutant_says_what_it_is() -> None:
    assert len(PLANTS) >= 25
    for name, mutant in PLANTS.items():
        assert mutant.what.endswith("."), name


@pytest.mark.parametrize("name", PLANTS)
def test_every_mutant_still_finds_what_it_replaces(name: str) -> None:
    with planted(name):
        assert name


def test_kinds_have_their_shares() -> None:
    kinds = Counter(swarm.kind_of(seed) for seed in range(4000))
    assert sum(swarm.KINDS.values()) == 100
    doubts = swarm.KINDS["race"] * swarm.DOUBT_SHARE
    shares = {**swarm.KINDS, "race": swarm.KINDS["race"] - doubts, "doubt": doubts}
    for name, percent in shares.items():
        assert abs(kinds[name] / 40 - percent) < 2, name
        assert {swarm.draw(s).kind for s in range(200) if swarm.kind_of(s) == name} == {name}


def test_options_are_drawn_from_the_seed_alone() -> None:
    assert swarm.draw(7) == swarm.draw(7)
    assert swarm.draw(7) != swarm.draw(8)
    assert "fault_phase_s" in swarm.draw(7).describe()
