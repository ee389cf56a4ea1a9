"""The add pipeline's options: chosen ids, the quorum timeout, the delayed ensemble change."""

from __future__ import annotations

import pytest

from client.errors import (
    BookieReadOnly,
    BookieTimeout,
    DuplicateEntryId,
    IncorrectParameter,
    QuorumTimeout,
)
from client.ids import BookieId, EntryId
from client.ledger.core.adds import AddsState, ChangeEnsemble, Confirmed, Failed
from client.ledger.core.members import PROBE_INTERVAL_S
from tests.unit.client.ledger.core.pipeline_driver import Pipeline, sends


def test_add_chosen_ids_are_confirmed_in_their_order() -> None:
    """ADD-CHOSEN: entries may come in any order; a gap holds back what is behind it."""
    pipeline = Pipeline((3, 2, 2))
    assert sends(pipeline.add(b"cc", entry=2)) == [(2, [0, 2])]
    assert pipeline.stored(2, 0) == pipeline.stored(2, 2) == []
    pipeline.add(b"bbbb", entry=1)
    assert pipeline.stored(1, 1) == pipeline.stored(1, 2) == []
    assert not pipeline.adds.is_waiting, "nothing will be confirmed before entry 0 is there"
    pipeline.add(b"a", entry=0)
    assert pipeline.adds.is_waiting
    pipeline.stored(0, 0)
    assert pipeline.stored(0, 1) == [Confirmed(EntryId(0), EntryId(2))]
    assert (pipeline.adds.last_add_pushed, pipeline.adds.confirmed_length) == (2, 7)


def test_add_chosen_length_counts_what_is_confirmed_only() -> None:
    pipeline = Pipeline()
    pipeline.add(b"far behind a gap", entry=9)
    pipeline.add(b"abc", entry=0)
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    assert pipeline.adds.confirmed_length == 3
    assert pipeline.adds.length == 19


def test_add_chosen_duplicates_are_refused() -> None:
    """ADD-CHOSEN: pending or confirmed; nothing is sent and nothing changes."""
    pipeline = Pipeline()
    pipeline.add(entry=0)
    pipeline.add(entry=5)
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    for entry in (0, 5):
        with pytest.raises(DuplicateEntryId):
            pipeline.add(entry=entry)
    with pytest.raises(IncorrectParameter):
        pipeline.add(entry=-1)
    assert len(pipeline.sealed) == 2
    assert sends(pipeline.add()) == [(6, [0, 1, 2])], "without an id: behind the last"


def test_add_chosen_entries_behind_a_gap_fail_with_the_rest() -> None:
    pipeline = Pipeline()
    pipeline.add(entry=4)
    error = QuorumTimeout("enough")
    assert pipeline.fail(error) == [Failed(EntryId(0), EntryId(4), error)]
    assert pipeline.adds.is_settled


def test_add_timeout_fails_the_ledger_when_the_head_waits_too_long() -> None:
    """ADD-TIMEOUT."""
    pipeline = Pipeline(quorum_timeout_s=30.0)
    pipeline.add()
    pipeline.now_s += 20
    pipeline.add()
    pipeline.now_s += 9.9
    assert pipeline.look() == []
    pipeline.now_s += 0.1
    (failed,) = pipeline.look()
    assert isinstance(failed, Failed)
    assert (failed.first, failed.last, type(failed.error)) == (0, 1, QuorumTimeout)


def test_add_timeout_goes_by_the_next_entry_to_confirm() -> None:
    pipeline = Pipeline(quorum_timeout_s=30.0)
    pipeline.add()
    pipeline.now_s += 20
    pipeline.add()
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    pipeline.now_s += 20
    assert pipeline.look() == [], "entry 1 is under way for 20 s only"
    pipeline.now_s += 10
    assert pipeline.look() != []


def test_add_timeout_runs_during_an_ensemble_change_too() -> None:
    """The metadata store hangs: owners must hear of it."""
    pipeline = Pipeline(quorum_timeout_s=30.0)
    pipeline.add()
    pipeline.failed(0, 0)
    pipeline.stored(0, 1)
    pipeline.stored(0, 2)
    pipeline.now_s += 30
    assert isinstance(pipeline.look()[0], Failed)


def test_without_add_timeout_or_with_nothing_pending_nothing_expires() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.now_s += 1e9
    assert pipeline.look() == []
    assert Pipeline(quorum_timeout_s=0.0).look() == []


def test_change_delay_keeps_a_failed_bookie_while_quorums_are_reached() -> None:
    """CHANGE-DELAY: b2 gets every add though it fails them all."""
    pipeline = Pipeline(delay_change=True)
    for entry in range(3):
        assert sends(pipeline.add()) == [(entry, [0, 1, 2])]
        assert pipeline.failed(entry, 2, BookieTimeout("slow")) == []
        pipeline.stored(entry, 0)
        assert pipeline.stored(entry, 1) == [Confirmed(EntryId(entry), EntryId(entry))]
    assert pipeline.adds.state is AddsState.OPEN
    assert pipeline.adds.holes.counts == {"b2": 3}


def test_change_delay_ends_when_an_add_cannot_reach_its_quorum() -> None:
    """CHANGE-DELAY: everybody who failed this add is replaced, not only the last one."""
    pipeline = Pipeline(delay_change=True)
    pipeline.add()
    assert pipeline.failed(0, 2) == []
    effects = pipeline.failed(0, 0)
    assert effects == [ChangeEnsemble({0: BookieId("b0"), 2: BookieId("b2")})]
    assert sends(pipeline.changed("b3", "b1", "b4")) == [(0, [0, 2])]
    pipeline.stored(0, 1)
    assert pipeline.stored(0, 0) == [Confirmed(EntryId(0), EntryId(0))]


def test_change_delay_ends_when_the_probe_that_an_add_counted_on_fails() -> None:
    """CHANGE-DELAY: found by simulation, where the writer waited for ever."""
    pipeline = Pipeline((3, 2, 1), delay_change=True)
    pipeline.add()
    pipeline.failed(0, 0)
    pipeline.failed(0, 1)
    pipeline.changed("b0", "b3", "b2")
    pipeline.stored(0, 1)
    pipeline.now_s += PROBE_INTERVAL_S
    pipeline.add()
    assert sends(pipeline.add()) == [(2, [0, 2])], "b0 is suspended and gets a probe"
    assert pipeline.failed(2, 2) == [], "the probe may be stored"
    assert pipeline.failed(2, 0) == [ChangeEnsemble({0: BookieId("b0"), 2: BookieId("b2")})]


def test_change_delay_does_not_wait_for_a_read_only_bookie() -> None:
    pipeline = Pipeline(delay_change=True)
    pipeline.add()
    assert pipeline.failed(0, 2, BookieReadOnly("full")) == [ChangeEnsemble({2: BookieId("b2")})]


def test_change_delay_sends_again_what_a_kept_bookie_missed_once_a_change_comes_anyway() -> None:
    pipeline = Pipeline((4, 4, 2), delay_change=True)
    pipeline.add()
    pipeline.failed(0, 3)
    pipeline.failed(0, 2, BookieReadOnly("full"))
    assert sends(pipeline.changed("b0", "b1", "b4", "b3")) == [(0, [2, 3])]


def test_change_delay_forgets_late_failures() -> None:
    pipeline = Pipeline(delay_change=True)
    pipeline.add()
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    assert pipeline.failed(0, 2) == []
    assert sends(pipeline.add()) == [(1, [0, 1, 2])], "no change"
