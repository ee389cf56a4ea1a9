"""HOLES: who lacks confirmed entries, whatever the reason, and when that is told."""

from __future__ import annotations

from client.errors import BookieTimeout, LedgerClosed, LedgerFenced
from client.ids import BookieId
from client.ledger.core.adds import (
    AddEffect,
    ChangeEnsemble,
    Failed,
    Holes,
    UnderReplicated,
)
from client.ledger.core.members import PROBE_INTERVAL_S
from tests.unit.client.ledger.core.pipeline_driver import Pipeline

B0, B1, B2 = BookieId("b0"), BookieId("b1"), BookieId("b2")


def told(effects: list[AddEffect]) -> list[tuple[BookieId, ...]]:
    return [effect.bookies for effect in effects if isinstance(effect, UnderReplicated)]


def confirm(pipeline: Pipeline, entry: int) -> None:
    """Add one entry that b0 and b1 store."""
    pipeline.add()
    pipeline.stored(entry, 0)
    pipeline.stored(entry, 1)


def suspend_b2(pipeline: Pipeline) -> None:
    """Entry 0: b2 fails it and nobody can replace b2."""
    pipeline.add()
    pipeline.failed(0, 2)
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    assert told(pipeline.changed()) == [], "nothing can be repaired there yet"


def test_the_account_tells_only_news() -> None:
    holes = Holes()
    assert holes.news() == ()
    holes.add([B0, B1])
    holes.add([B0])
    assert holes.news() == (B0, B1)
    assert holes.news() == ()
    assert holes.counts == {B0: 2, B1: 1}


def test_a_full_ledger_has_no_holes() -> None:
    pipeline = Pipeline()
    confirm(pipeline, 0)
    pipeline.stored(0, 2)
    assert told(pipeline.fail(LedgerClosed("closed"))) == []
    assert pipeline.adds.holes.counts == {}


def test_holes_of_a_suspended_member_are_told_when_it_resumes() -> None:
    pipeline = Pipeline()
    suspend_b2(pipeline)
    confirm(pipeline, 1)
    pipeline.now_s += PROBE_INTERVAL_S
    pipeline.add()
    assert told(pipeline.stored(2, 2)) == [(B2,)]
    assert pipeline.adds.holes.counts == {B2: 2}, "entries 0 and 1; 2 was the probe"


def test_holes_are_told_once_more_at_the_end() -> None:
    """The mark of the resumption may have been removed: nobody knew whether that was all."""
    pipeline = Pipeline()
    suspend_b2(pipeline)
    pipeline.now_s += PROBE_INTERVAL_S
    pipeline.add()
    pipeline.stored(1, 2)
    pipeline.stored(1, 0)
    pipeline.stored(1, 1)
    assert told(pipeline.fail(LedgerClosed("closed"))) == [(B2,)]


def test_holes_of_a_member_that_never_resumed_are_told_at_the_end() -> None:
    pipeline = Pipeline()
    suspend_b2(pipeline)
    confirm(pipeline, 1)
    assert told(pipeline.fail(LedgerClosed("closed"))) == [(B2,)]
    assert pipeline.adds.is_settled


def test_holes_of_a_replaced_member_are_told_after_the_change() -> None:
    """A late failure: entry 0 belongs to the old fragment, and b2 may be alive."""
    pipeline = Pipeline()
    confirm(pipeline, 0)
    pipeline.failed(0, 2, BookieTimeout("late"))
    pipeline.add()
    assert told(pipeline.changed("b0", "b1", "b3")) == [(B2,)]


def test_what_a_replaced_member_has_not_answered_counts_as_a_hole() -> None:
    """Its answers are not listened to any more."""
    pipeline = Pipeline()
    confirm(pipeline, 0)
    pipeline.add()
    pipeline.failed(1, 2)
    assert told(pipeline.changed("b0", "b1", "b3")) == [(B2,)]
    assert pipeline.adds.holes.counts == {B2: 1}


def test_a_change_that_replaces_nobody_who_lacks_anything_tells_nothing() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 2)
    assert told(pipeline.changed("b0", "b1", "b3")) == []


def test_the_end_waits_for_the_last_answer_to_a_confirmed_add() -> None:
    """A third replica that is a bit slower is no hole; one that fails then is."""
    for is_stored in (True, False):
        pipeline = Pipeline()
        confirm(pipeline, 0)
        confirm(pipeline, 1)
        pipeline.stored(0, 2)
        effects = pipeline.fail(LedgerClosed("closed"))
        assert [type(effect) for effect in effects] == [Failed]
        assert not pipeline.adds.is_settled
        last = pipeline.stored(1, 2) if is_stored else pipeline.failed(1, 2)
        assert told(last) == ([] if is_stored else [(B2,)])
        assert pipeline.adds.is_settled


def test_a_fenced_answer_is_a_hole_where_others_confirmed_the_entry() -> None:
    pipeline = Pipeline()
    confirm(pipeline, 0)
    effects = pipeline.failed(0, 2, LedgerFenced("somebody recovers"))
    assert isinstance(effects[0], Failed)
    assert told(effects) == [(B2,)]


def test_answers_to_unconfirmed_adds_after_the_end_tell_nothing_twice() -> None:
    pipeline = Pipeline()
    suspend_b2(pipeline)
    pipeline.add()
    pipeline.add()
    assert told(pipeline.fail(LedgerFenced("fenced"))) == [(B2,)]
    assert pipeline.failed(1, 0) == pipeline.failed(2, 1) == pipeline.stored(1, 1) == []


def test_an_unconfirmed_entry_is_no_hole() -> None:
    pipeline = Pipeline()
    pipeline.add()
    assert isinstance(pipeline.failed(0, 2)[0], ChangeEnsemble)
    assert told(pipeline.fail(LedgerFenced("fenced"))) == []
