"""CHANGE-SLOW: who is behind the others, for how long, and what becomes of it."""

from __future__ import annotations

import pytest

from client.errors import BookieUnavailable
from client.ids import BookieId, EntryId
from client.ledger.core.adds import (
    AddEffect,
    AddsState,
    ChangeEnsemble,
    SlowLimits,
    SlowMembers,
    UnderReplicated,
)
from tests.unit.client.ledger.core.pipeline_driver import Pipeline, sends

B2 = BookieId("b2")
LIMITS = SlowLimits(lag_s=2.0, patience_s=10.0)
LOOK_S = 0.5


class Behind:
    """Adds that one member answers `lag` entries later than the others, two entries a look."""

    def __init__(self, slow: str = "b2", *, delay_change: bool = False) -> None:
        self.pipeline = Pipeline(slow=LIMITS, delay_change=delay_change)
        self.slow = slow
        self.added = 0
        self.effects: list[AddEffect] = []
        """Those of looking."""

    def step(self, lag: int, *, others_lag: int = 0) -> None:
        """Add two entries, let members answer as late as they are, and look."""
        pipeline = self.pipeline
        for _ in range(2):
            pipeline.add()
            self.added += 1
            for index, name in enumerate(pipeline.adds.members.ensemble):
                entry = self.added - 1 - (lag if name == self.slow else others_lag)
                if entry >= 0:
                    pipeline.stored(entry, index)
        pipeline.now_s += LOOK_S
        self.effects += pipeline.look()

    def steps(self, seconds: float, lag: int, *, others_lag: int = 0) -> None:
        """Go on for so long, but not beyond the beginning of a change."""
        for _ in range(int(seconds / LOOK_S)):
            self.step(lag, others_lag=others_lag)
            if self.pipeline.adds.state is AddsState.CHANGING:
                return


FAR, NEAR = 20, 4
"""Entries that are 5 s and 1 s."""


def test_who_stays_far_behind_is_replaced_by_a_planned_change() -> None:
    behind = Behind()
    behind.steps(12, FAR)
    assert behind.effects == [], "neither the lag nor the patience is over"
    behind.steps(4, FAR)
    assert behind.effects == [ChangeEnsemble({2: B2}, is_planned=True)]
    assert behind.pipeline.adds.state is AddsState.CHANGING
    behind.pipeline.add()
    effects = behind.pipeline.changed("b0", "b1", "b9")
    assert sends(effects) == [(behind.added, [2])], "what is not confirmed"
    assert UnderReplicated((B2,)) in effects, "it may not store what it has not answered"
    assert behind.pipeline.adds.members.ensemble == ("b0", "b1", "b9")


def test_who_is_a_little_behind_stays() -> None:
    behind = Behind()
    behind.steps(60, NEAR)
    assert behind.effects == []


def test_who_catches_up_in_between_stays() -> None:
    behind = Behind()
    for _ in range(6):
        behind.steps(8, FAR)
        for entry in range(behind.added):
            behind.pipeline.stored(entry, 2)
        behind.steps(1, 0)
    assert behind.effects == []


def test_when_all_are_slow_nobody_is_replaced() -> None:
    """What is confirmed late was not confirmed long ago."""
    behind = Behind()
    behind.steps(60, FAR, others_lag=FAR - 2)
    assert behind.effects == []


def test_without_a_replacement_it_stays_and_gets_what_it_missed() -> None:
    behind = Behind()
    behind.steps(16, FAR)
    assert len(behind.effects) == 1
    behind.pipeline.add()
    assert sends(behind.pipeline.changed()) == [(behind.added, [2])], "sent to it after all"
    assert behind.pipeline.adds.members.suspended == []
    assert behind.pipeline.adds.state is AddsState.OPEN
    behind.added += 1
    behind.steps(8, FAR)
    assert len(behind.effects) == 1, "it has as much time again"
    behind.steps(8, FAR)
    assert len(behind.effects) == 2


def test_who_may_not_be_replaced_stays() -> None:
    behind = Behind()
    behind.pipeline.may_replace = False
    behind.steps(40, FAR)
    assert behind.effects == []
    assert behind.pipeline.adds.state is AddsState.OPEN


def test_nobody_is_replaced_for_being_slow_while_somebody_is_suspended() -> None:
    behind = Behind()
    behind.steps(4, FAR)
    behind.pipeline.add()
    behind.added += 1
    behind.pipeline.failed(behind.added - 1, 0)
    behind.pipeline.changed()
    assert behind.pipeline.adds.members.suspended == ["b0"]
    for _ in range(40):
        behind.pipeline.now_s += LOOK_S
        assert behind.pipeline.look() == []


@pytest.mark.parametrize("is_delayed", [False, True])
def test_with_delayed_changes_nobody_is_slow(is_delayed: bool) -> None:
    behind = Behind(delay_change=is_delayed)
    behind.steps(16, FAR)
    assert len(behind.effects) == (not is_delayed)


def test_a_failure_during_a_planned_change_is_dealt_with_by_another_one() -> None:
    """CHANGE-AGAIN; and who was only slow is not suspended by it."""
    behind = Behind()
    behind.steps(16, FAR)
    behind.pipeline.add()
    behind.pipeline.failed(behind.added, 0, BookieUnavailable("gone"))
    (change,) = behind.pipeline.changed()
    assert change == ChangeEnsemble({0: BookieId("b0")})
    behind.pipeline.changed("b9", "b1", "b2")
    assert behind.pipeline.adds.members.suspended == []
    assert behind.pipeline.adds.state is AddsState.OPEN


def test_the_account_of_several_who_are_behind_names_one_at_a_time() -> None:
    slow = SlowMembers(LIMITS)
    both = (BookieId("b1"), B2)
    found = [slow.look(EntryId(0), EntryId(5), both, at / 2) for at in range(31)]
    assert [bookie for bookie in found if bookie] == ["b1", "b2"]


def test_what_was_seen_is_forgotten_with_the_ensemble() -> None:
    slow = SlowMembers(LIMITS)
    for at in range(20):
        slow.look(EntryId(0), EntryId(5), (B2,), at / 2)
    slow.forget()
    for at in range(20, 40):
        assert slow.look(EntryId(0), EntryId(5), (B2,), at / 2) is None
