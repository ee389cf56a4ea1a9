"""Runs that met too little are told so, long ones only."""

from __future__ import annotations

import pytest

from tests.simulation.bookies import swarm
from tests.simulation.coverage import SCHEDULES_MIN, is_idle, missing
from tests.simulation.result import Result

FAULTS = dict.fromkeys((*swarm.FAULTS, *swarm.LEAVING_FAULTS), 1)
PLENTY = {
    "adds": 10_000,
    "reads": 10_000,
    "recoveries": 10_000,
    "disks filled at recovery adds": 10_000,
    "trace events": 100_000,
    "reads of the past": 10_000,
    "late writes": 10_000,
    "sessions that came back to an older server": 10_000,
}


def test_a_run_that_met_everything_misses_nothing() -> None:
    assert missing("ledger", SCHEDULES_MIN, FAULTS, PLENTY) == []


def test_a_class_of_faults_that_never_struck_is_missed() -> None:
    faults = FAULTS | {"lost disk": 0}
    assert missing("ledger", SCHEDULES_MIN, faults, PLENTY) == ["no 'lost disk' struck"]


def test_an_idle_workload_is_noticed() -> None:
    few = PLENTY | {"adds": 12}
    assert missing("ledger", SCHEDULES_MIN, FAULTS, few) == ["only 12 adds"]


@pytest.mark.parametrize("world", ["ledger", "cluster", "compaction", "transactions"])
def test_short_runs_are_not_judged(world: str) -> None:
    assert missing(world, SCHEDULES_MIN - 1, {}, {}) == []
    assert missing(world, SCHEDULES_MIN, {}, {})


def test_a_schedule_without_an_event_that_rules_judge_is_idle() -> None:
    assert is_idle(Result(seed=0, faults={"kill client": 2}, counts={"recoveries": 1}))
    assert not is_idle(Result(seed=0, counts={"trace events": 1}))
    assert not is_idle(Result(seed=0, violation="R4"))
