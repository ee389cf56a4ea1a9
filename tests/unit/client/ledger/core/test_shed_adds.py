"""ADD-BUSY: what a bookie sheds for want of room is sent to it again, for a while."""

from __future__ import annotations

from client.errors import BookieUnavailable, LedgerClosed, LedgerFenced
from client.ids import BookieId, EntryId
from client.ledger.core.adds import AddsState, ChangeEnsemble, Confirmed, PauseBusy, ShedAdds
from tests.unit.client.ledger.core.pipeline_driver import Pipeline, sends

TIMEOUT_S = 5.0


def pipeline(**options: bool) -> Pipeline:
    return Pipeline(busy_timeout_s=TIMEOUT_S, **options)


def test_a_busy_bookie_is_not_a_failed_one() -> None:
    """ADD-BUSY."""
    it = pipeline()
    it.add()
    assert it.busy(0, 0) == [PauseBusy()]
    it.add()
    assert it.adds.state is AddsState.OPEN
    assert it.busy(1, 0) == [], "one pause for all that is shed meanwhile"
    assert it.stored(0, 1) == []
    assert sends(it.send_again()) == [(0, [0]), (1, [0])], "in entry order, to that bookie alone"
    assert it.stored(0, 0) == [Confirmed(EntryId(0), EntryId(0))]
    assert it.busy(1, 0) == [PauseBusy()], "the next pause"
    it.stored(1, 1)
    assert it.stored(1, 2) == [Confirmed(EntryId(1), EntryId(1))]
    assert sends(it.send_again()) == [(1, [0])], "confirmed, but the copy is still owed"
    it.stored(1, 0)
    it.stored(0, 2)
    assert it.adds.pending_bytes == 0
    assert not it.adds.holes.counts


def test_all_bookies_busy_at_once_keep_the_ledger() -> None:
    """ADD-BUSY: this is what ended leaderships under load."""
    it = pipeline()
    it.add()
    assert it.busy(0, 0) == [PauseBusy()]
    assert it.busy(0, 1) == it.busy(0, 2) == []
    it.now_s += TIMEOUT_S - 0.1
    assert sends(it.send_again()) == [(0, [0]), (0, [1]), (0, [2])]
    it.stored(0, 2)
    assert it.stored(0, 1) == [Confirmed(EntryId(0), EntryId(0))]


def test_a_bookie_that_only_sheds_for_a_whole_timeout_has_failed() -> None:
    """ADD-BUSY: bounded by the request timeout."""
    it = pipeline()
    it.add()
    it.busy(0, 0)
    it.send_again()
    it.now_s += TIMEOUT_S - 0.1
    assert it.busy(0, 0) == [PauseBusy()]
    it.add()
    it.now_s += 0.1
    assert it.busy(1, 0) == [ChangeEnsemble({0: BookieId("b0")})]
    assert it.send_again() == [], "the change decides who gets it"
    assert sends(it.changed("b9", "b1", "b2")) == [(0, [0]), (1, [0])]


def test_a_stored_add_ends_the_time_of_being_busy() -> None:
    it = pipeline()
    it.add()
    it.add()
    it.busy(0, 0)
    it.stored(1, 0)
    it.now_s += TIMEOUT_S
    assert it.busy(0, 0) == [], "it waits in the pause that runs"
    assert sends(it.send_again()) == [(0, [0]), (0, [0])]


def test_what_was_shed_goes_to_nobody_else() -> None:
    """ADD-STALE."""
    it = pipeline()
    it.add()
    it.busy(0, 0)
    it.failed(0, 1)
    assert sends(it.changed("b0", "b9", "b2")) == [(0, [1])]
    assert it.busy(0, 1, name="b1") == [], "it has been replaced"
    assert sends(it.send_again()) == [(0, [0])]
    it.busy(0, 0)
    it.failed(0, 0)
    it.changed("b8", "b9", "b2")
    assert it.send_again() == []
    assert it.adds._shed.since_s == {}


def test_nothing_is_sent_again_by_a_pipeline_that_ended() -> None:
    """HOLES: a confirmed entry that a busy bookie lacks is told of."""
    it = pipeline()
    it.add()
    it.busy(0, 0)
    it.stored(0, 1)
    it.stored(0, 2)
    it.fail(LedgerClosed("closed"))
    assert not it.adds.is_settled
    (told,) = it.send_again()
    assert told == ((BookieId("b0"),),)
    assert it.adds.is_settled
    assert it.busy(0, 0) == []


def test_a_probe_that_is_shed_leaves_its_bookie_suspended() -> None:
    """CHANGE-SUSPEND."""
    it = pipeline()
    it.add()
    it.failed(0, 0)
    it.changed()
    it.stored(0, 1)
    it.stored(0, 2)
    it.now_s += 60
    it.add()
    assert it.busy(1, 0) == []
    assert it.adds.members.suspended == [BookieId("b0")]
    assert it.send_again() == []


def test_fencing_ends_the_waiting() -> None:
    """ADD-FENCED."""
    it = pipeline()
    it.add()
    it.busy(0, 0)
    it.failed(0, 1, LedgerFenced("recovered"))
    assert it.adds.is_settled
    assert it.send_again() == []


def test_without_a_timeout_a_shed_add_has_failed() -> None:
    """Recovery: its adds are never shed by our bookies, and others stand by."""
    it = Pipeline()
    it.add()
    assert it.busy(0, 0) == [ChangeEnsemble({0: BookieId("b0")})]


def test_other_failures_stay_failures() -> None:
    it = pipeline()
    it.add()
    it.busy(0, 0)
    gone = BookieUnavailable("gone")
    assert it.failed(0, 0, gone) == [ChangeEnsemble({0: BookieId("b0")})]


def test_the_time_begins_with_the_first_that_is_shed() -> None:
    shed = ShedAdds(TIMEOUT_S)
    bookie = BookieId("b0")
    assert not shed.is_over(bookie, 10.0)
    assert not shed.is_over(bookie, 14.9)
    assert shed.is_over(bookie, 15.0)
    shed.on_stored(bookie)
    assert not shed.is_over(bookie, 15.0)
    shed.keep((BookieId("b1"),))
    assert shed.since_s == {}
