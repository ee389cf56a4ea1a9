"""The add pipeline, rule by rule. Rule names as in `adds.py` and PROTOCOL.md."""

from __future__ import annotations

import pytest

from client.errors import (
    BookieTimeout,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from client.ids import BookieId, EntryId
from client.ledger.core.adds import (
    AddsState,
    ChangeEnsemble,
    Confirmed,
    Failed,
    SendAdd,
)
from client.ledger.core.members import PROBE_INTERVAL_S
from tests.unit.client.ledger.core.pipeline_driver import Pipeline, sends

ENSEMBLE = ("b0", "b1", "b2")


def test_an_add_goes_to_its_write_set() -> None:
    pipeline = Pipeline((4, 3, 2))
    assert sends(pipeline.add()) == [(0, [0, 1, 2])]
    assert sends(pipeline.add()) == [(1, [1, 2, 3])]
    effects = pipeline.add()
    assert isinstance(effects[0], SendAdd)
    assert list(effects[0].indices) == [2, 3, 0], "the write set's own order"
    assert pipeline.adds.last_add_pushed == 2


def test_add_order_confirms_at_the_ack_quorum() -> None:
    """ADD-ORDER: Qa distinct bookies."""
    pipeline = Pipeline()
    pipeline.add()
    assert pipeline.stored(0, 2) == []
    assert pipeline.stored(0, 2) == [], "the same bookie twice is one ack"
    assert pipeline.stored(0, 0) == [Confirmed(EntryId(0), EntryId(0))]
    assert pipeline.adds.lac == 0
    assert pipeline.stored(0, 1) == [], "the third answer confirms nothing again"


def test_add_order_waits_for_every_earlier_entry() -> None:
    """ADD-ORDER: entry order."""
    pipeline = Pipeline()
    for _ in range(3):
        pipeline.add()
    for entry in (2, 1):
        assert pipeline.stored(entry, 0) == []
        assert pipeline.stored(entry, 1) == []
    assert pipeline.adds.lac == -1
    pipeline.stored(0, 0)
    assert pipeline.stored(0, 1) == [Confirmed(EntryId(0), EntryId(2))]
    assert pipeline.adds.lac == 2


def test_add_lac_is_the_lac_at_sending() -> None:
    """ADD-LAC, and lengths including the entry."""
    pipeline = Pipeline()
    pipeline.add(b"a")
    pipeline.add(b"bb")
    for index in (0, 1):
        pipeline.stored(0, index)
    pipeline.add(b"ccc")
    assert pipeline.sealed == [(0, -1, 1), (1, -1, 3), (2, 0, 6)]
    assert pipeline.adds.length == 6
    assert pipeline.adds.confirmed_length == 1


def test_add_lac_is_repeated_by_a_resend() -> None:
    """ADD-LAC: re-sends reuse the sealed request."""
    pipeline = Pipeline()
    first = pipeline.add()[0]
    second = pipeline.add()[0]
    pipeline.stored(0, 0)
    pipeline.failed(1, 2)
    effects = pipeline.changed("b0", "b1", "b3")
    assert isinstance(first, SendAdd)
    assert isinstance(second, SendAdd)
    resent = [effect.entry.request for effect in effects if isinstance(effect, SendAdd)]
    assert resent == [first.entry.request, second.entry.request]
    assert len(pipeline.sealed) == 2
    assert first.entry.request is not None


def test_a_frozen_lac_is_carried_by_every_entry() -> None:
    pipeline = Pipeline(lac=4, frozen_lac=4)
    pipeline.add(length=10)
    for index in (0, 1):
        pipeline.stored(5, index)
    pipeline.add(length=25)
    assert pipeline.sealed == [(5, 4, 10), (6, 4, 25)]
    assert pipeline.adds.confirmed_length == 10


def test_add_stale_answers_count_for_nothing() -> None:
    """ADD-STALE: the bookie at that index is another one now."""
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 0)
    pipeline.changed("b3", "b1", "b2")
    assert pipeline.stored(0, 0, "b0") == []
    assert pipeline.failed(0, 0, name="b0") == []
    assert pipeline.stored(0, 1) == []
    assert pipeline.stored(0, 0, "b3") == [Confirmed(EntryId(0), EntryId(0))]


def test_a_failure_asks_for_an_ensemble_change_once() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.add()
    assert pipeline.failed(0, 1) == [ChangeEnsemble({1: BookieId("b1")})]
    assert pipeline.failed(1, 1) == [], "the same bookie is being replaced already"
    assert pipeline.adds.state is AddsState.CHANGING


def test_change_hold_confirms_nothing_while_a_change_runs() -> None:
    """CHANGE-HOLD (4651): LAC + 1 must stay the first entry of the new fragment."""
    pipeline = Pipeline()
    pipeline.add()
    pipeline.add()
    pipeline.failed(1, 2)
    assert pipeline.stored(0, 0) == []
    assert pipeline.stored(0, 1) == []
    assert pipeline.adds.lac == -1
    effects = pipeline.changed("b0", "b1", "b3")
    assert sends(effects) == [(0, [2]), (1, [2])]
    assert effects[-1] == Confirmed(EntryId(0), EntryId(0))


def test_adds_made_during_a_change_skip_the_failed_bookie_until_it_is_over() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 1)
    assert sends(pipeline.add()) == [(1, [0, 2])]
    assert sends(pipeline.changed("b0", "b3", "b2")) == [(0, [1]), (1, [1])]
    assert sends(pipeline.add()) == [(2, [0, 1, 2])]


def test_change_unset_strikes_acks_of_the_replaced() -> None:
    """CHANGE-UNSET: entry 0 has its quorum only with the bookie that is replaced."""
    pipeline = Pipeline()
    pipeline.add()
    pipeline.add()
    pipeline.stored(1, 0)
    pipeline.stored(1, 2)
    pipeline.stored(0, 2)
    pipeline.failed(0, 1)
    pipeline.failed(1, 2)
    assert isinstance(pipeline.changed("b0", "b3", "b2")[0], ChangeEnsemble)
    effects = pipeline.changed("b0", "b3", "b4")
    assert sends(effects) == [(0, [1, 2]), (1, [1, 2])]
    assert pipeline.adds.lac == -1, "entry 1 lost its ack from b2"
    pipeline.stored(0, 0)
    assert pipeline.stored(0, 1) == [Confirmed(EntryId(0), EntryId(0))]
    assert pipeline.stored(1, 2) == [Confirmed(EntryId(1), EntryId(1))]


def test_change_unset_covers_all_adds_before_the_first_confirmation() -> None:
    """CHANGE-UNSET (3005): entry 1 must not be confirmed with a replaced bookie's ack."""
    pipeline = Pipeline()
    pipeline.add()
    pipeline.add()
    pipeline.add()
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    pipeline.failed(2, 2)
    assert pipeline.adds.lac == 0
    pipeline.stored(1, 0)
    pipeline.stored(1, 2)
    effects = pipeline.changed("b0", "b1", "b3")
    assert sends(effects) == [(1, [2]), (2, [2])]
    assert not any(isinstance(effect, Confirmed) for effect in effects)
    assert pipeline.stored(1, 2, "b3") == [Confirmed(EntryId(1), EntryId(1))]


def test_change_drain_confirms_though_nothing_is_sent_again() -> None:
    """CHANGE-DRAIN (1857, 4459): striped entry 0 does not touch the replaced index."""
    pipeline = Pipeline((4, 2, 2))
    pipeline.add()
    pipeline.add()
    pipeline.failed(1, 2)
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    effects = pipeline.changed("b0", "b1", "b4", "b3")
    assert effects[-1] == Confirmed(EntryId(0), EntryId(0))
    assert sends(effects) == [(1, [2])]


def test_change_drain_after_a_change_that_changed_nothing() -> None:
    """CHANGE-DRAIN: nobody could replace b2, its quorum is there without it."""
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 2)
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    assert pipeline.changed() == [Confirmed(EntryId(0), EntryId(0))]
    assert pipeline.adds.state is AddsState.OPEN


def test_change_again_for_bookies_that_failed_meanwhile() -> None:
    """CHANGE-AGAIN (1886): nothing is sent again before they are replaced, too."""
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 0)
    assert pipeline.failed(0, 1) == []
    assert pipeline.changed("b3", "b1", "b2") == [ChangeEnsemble({1: BookieId("b1")})]
    assert pipeline.adds.state is AddsState.CHANGING
    assert sends(pipeline.changed("b3", "b4", "b2")) == [(0, [0, 1])]


def test_failures_of_a_bookie_that_the_change_replaced_are_settled_by_it() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 0)
    pipeline.failed(0, 1)
    effects = pipeline.changed("b3", "b4", "b2")
    assert sends(effects) == [(0, [0, 1])], "another client replaced b1 in the same metadata"


def test_add_late_failure_waits_for_the_next_add() -> None:
    """ADD-LATE: the entry has its quorum; nothing to do until another needs the bookie."""
    pipeline = Pipeline()
    pipeline.add()
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    assert pipeline.failed(0, 2, BookieTimeout("late")) == []
    assert pipeline.adds.state is AddsState.OPEN
    effects = pipeline.add()
    assert effects[0] == ChangeEnsemble({2: BookieId("b2")})
    assert sends(effects) == [(1, [0, 1])]


def test_add_late_failure_of_a_complete_but_unconfirmed_add() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.add()
    pipeline.stored(1, 0)
    pipeline.stored(1, 1)
    assert pipeline.failed(1, 2) == []
    pipeline.stored(0, 0)
    assert pipeline.stored(0, 1) == [Confirmed(EntryId(0), EntryId(1))]


def test_a_late_failure_joins_the_next_change() -> None:
    pipeline = Pipeline((4, 4, 2))
    pipeline.add()
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    pipeline.failed(0, 3)
    effects = pipeline.add()
    assert effects[0] == ChangeEnsemble({3: BookieId("b3")})
    assert pipeline.failed(1, 2) == []
    assert pipeline.changed("b0", "b1", "b2", "b4") == [ChangeEnsemble({2: BookieId("b2")})]


@pytest.mark.parametrize("error", [LedgerFenced("f"), UnauthorizedAccess("u")])
def test_add_fenced_fails_everything_unconfirmed(error: LedgerError) -> None:
    """ADD-FENCED: in entry order, and nothing can be added any more."""
    pipeline = Pipeline()
    for _ in range(3):
        pipeline.add()
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    assert pipeline.failed(1, 2, error) == [Failed(EntryId(1), EntryId(2), error)]
    assert pipeline.adds.pending_bytes == 2, "b2 has not answered for entry 0, which is confirmed"
    with pytest.raises(type(error)):
        pipeline.add()
    assert pipeline.adds.last_add_pushed == 2
    assert pipeline.stored(1, 0) == []
    assert pipeline.failed(1, 1) == []
    assert pipeline.changed("b4", "b1", "b2") == []


def test_add_fenced_counts_even_for_an_entry_with_its_quorum() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    effects = pipeline.failed(0, 2, LedgerFenced("f"))
    assert isinstance(effects[0], Failed)
    assert (effects[0].first, effects[0].last) == (1, 0), "nothing was pending"


def test_add_fenced_of_a_replaced_bookie_is_stale() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 0)
    pipeline.changed("b3", "b1", "b2")
    assert pipeline.failed(0, 0, LedgerFenced("f"), name="b0") == []
    assert pipeline.adds.state is AddsState.OPEN


def test_fail_ends_a_running_change() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 0)
    error = LedgerClosed("closed by another client")
    assert pipeline._checked(pipeline.adds.fail(error)) == [Failed(EntryId(0), EntryId(0), error)]
    assert pipeline._checked(pipeline.adds.fail(error)) == []


def test_without_replacement_the_rest_goes_on() -> None:
    """b2 is suspended: no adds go there, but a probe now and then."""
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 2)
    pipeline.changed()
    assert pipeline.adds.members.suspended == ["b2"]
    assert sends(pipeline.add()) == [(1, [0, 1])]
    pipeline.stored(1, 0)
    pipeline.stored(0, 0)
    pipeline.stored(0, 1)
    assert pipeline.stored(1, 1) == [Confirmed(EntryId(1), EntryId(1))]
    pipeline.now_s += PROBE_INTERVAL_S
    assert sends(pipeline.add()) == [(2, [0, 1, 2])], "a probe"
    assert sends(pipeline.add()) == [(3, [0, 1])], "one is enough"
    assert pipeline.failed(2, 2) == [], "still down"


def test_a_stored_probe_brings_a_suspended_bookie_back() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 2)
    pipeline.changed()
    pipeline.now_s += PROBE_INTERVAL_S
    pipeline.add()
    pipeline.add()
    effects = pipeline.stored(1, 2)
    assert sends(effects) == [(0, [2]), (2, [2])], "it gets what it missed and is unconfirmed"
    assert pipeline.adds.members.suspended == []
    assert sends(pipeline.add()) == [(3, [0, 1, 2])]


def test_an_add_is_not_stuck_when_another_bookie_goes_after_one_came_back() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 2)
    pipeline.changed()
    pipeline.add()
    pipeline.now_s += PROBE_INTERVAL_S
    pipeline.add()
    pipeline.stored(2, 2)
    assert pipeline.failed(1, 1) == [ChangeEnsemble({1: BookieId("b1")})]
    pipeline.changed()
    pipeline.stored(0, 0)
    assert pipeline.stored(0, 2) == [Confirmed(EntryId(0), EntryId(0))]


def test_a_new_failure_takes_the_suspended_along() -> None:
    pipeline = Pipeline((4, 4, 2))
    pipeline.add()
    pipeline.failed(0, 3)
    pipeline.changed()
    assert pipeline.failed(0, 2) == [ChangeEnsemble({3: BookieId("b3"), 2: BookieId("b2")})]
    assert sends(pipeline.changed("b0", "b1", "b2", "b4")) == [(0, [3])]
    assert pipeline.adds.members.suspended == ["b2"]


def test_suspended_bookies_are_replaced_when_others_appear() -> None:
    pipeline = Pipeline()
    pipeline.add()
    assert pipeline.adds.replace_suspended() == ()
    pipeline.failed(0, 2)
    pipeline.changed()
    effects = pipeline._checked(pipeline.adds.replace_suspended())
    assert effects == [ChangeEnsemble({2: BookieId("b2")})]
    assert pipeline.adds.replace_suspended() == ()
    assert sends(pipeline.changed("b0", "b1", "b3")) == [(0, [2])]
    assert pipeline.adds.members.suspended == []


def test_without_replacement_and_without_quorum_the_ledger_fails() -> None:
    pipeline = Pipeline()
    pipeline.add()
    pipeline.failed(0, 2)
    pipeline.changed()
    pipeline.failed(0, 1)
    effects = pipeline.changed()
    assert isinstance(effects[0], Failed)
    assert isinstance(effects[0].error, NotEnoughBookies)


def test_a_striped_ledger_fails_when_one_write_set_loses_its_quorum() -> None:
    pipeline = Pipeline((4, 2, 2))
    pipeline.add()
    pipeline.failed(0, 1)
    effects = pipeline.changed()
    assert isinstance(effects[0], Failed)


def test_pending_bytes_count_until_every_bookie_answered() -> None:
    pipeline = Pipeline()
    pipeline.add(b"12345")
    pipeline.add(b"123")
    assert pipeline.adds.pending_bytes == 8
    for index in (0, 1):
        pipeline.stored(0, index)
    assert pipeline.adds.pending_bytes == 8, "b2 still has to answer"
    pipeline.stored(0, 2)
    assert pipeline.adds.pending_bytes == 3
    for index in (0, 1):
        pipeline.stored(1, index)
    pipeline.failed(1, 2)
    assert pipeline.adds.pending_bytes == 0


def test_pending_bytes_forget_what_a_replaced_bookie_never_answered() -> None:
    pipeline = Pipeline()
    pipeline.add(b"12345")
    for index in (0, 1):
        pipeline.stored(0, index)
    pipeline.add(b"1")
    pipeline.failed(1, 2)
    pipeline.changed("b0", "b1", "b3")
    assert pipeline.adds.pending_bytes == 1


def test_an_ensemble_that_arrives_unasked_is_ignored() -> None:
    pipeline = Pipeline()
    pipeline.add()
    assert pipeline.changed("b3", "b1", "b2") == []
    assert pipeline.adds.members.ensemble == ENSEMBLE
