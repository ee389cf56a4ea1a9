"""Each procedure line by line: what it asks for next, whatever came of what it asked before."""

from __future__ import annotations

from typing import Any

from broker.offload.core.procedures import (
    Act,
    Delete,
    Failed,
    List,
    Look,
    Prove,
    TrimTo,
    Upload,
    bury,
    copy,
    drop,
    withdraw,
)
from client.errors import LogCorrupt, StoreUnavailable
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.offload_state import Marked
from client.log.offloaded import Abandon, Commit, Drop, Intend, Reject, Unbury
from client.log.segment import Segment, SegmentFacts, StoredObject
from client.log.segment_object import Description, Footer, ObjectName

SEGMENT = Segment(LedgerId(7), Offset(10), LeaderEpoch(0), 5, SegmentFacts(Offset(19), 100, 3))
FRESH, OLD = (ObjectName(Offset(10), LedgerId(7), attempt) for attempt in (1, 2))
OTHER = ObjectName(Offset(0), LedgerId(6), 3)
STORED = StoredObject(1, 42, 10, 99, 1000)


def footer(name: ObjectName) -> Footer:
    return Footer(Description("c", "t", "id", 0, name.attempt, SEGMENT), (), 10, 99)


def play(work: Any, *outcomes: Any) -> tuple[list[Act], Any]:
    """Return the acts of a procedure whose outcomes are these, and what it returns."""
    acts, left = [work.send(None)], [*outcomes]
    while True:
        try:
            acts.append(work.send(left.pop(0)))
        except StopIteration as stop:
            assert not left
            return acts, stop.value


def test_intent_upload_look_commit() -> None:
    acts, failed = play(copy(SEGMENT, FRESH, None, 1000), None, None, footer(FRESH), None)
    assert acts == [
        List(Intend(FRESH, Offset(20), None)),
        Upload(FRESH, SEGMENT),
        Look(FRESH),
        List(Commit(FRESH, Offset(20), STORED)),
    ]
    assert failed is None


def test_an_upload_is_judged_by_what_is_there_and_by_nothing_else() -> None:
    error = StoreUnavailable("no answer")
    acts, failed = play(copy(SEGMENT, FRESH, None, 1000), None, error, footer(FRESH), None)
    assert isinstance(acts[-1], List)
    assert failed is None
    acts, failed = play(copy(SEGMENT, FRESH, None, 1000), None, error, None)
    assert acts[-1] == Look(FRESH)
    assert failed == Failed(error)
    _, failed = play(copy(SEGMENT, FRESH, None, 1000), None, None, footer(OLD))
    assert failed == Failed(None)


def test_what_another_has_begun_is_taken_if_it_is_there_and_buried_if_not() -> None:
    left = Marked(OLD, 1)
    acts, _ = play(copy(SEGMENT, FRESH, left, 1000), footer(OLD), None)
    assert acts == [
        Look(OLD),
        List(Commit(OLD, Offset(20), STORED._replace(attempt=2))),
    ]
    acts, _ = play(copy(SEGMENT, FRESH, left, 1000), None, None, None, footer(FRESH), None)
    assert acts[:2] == [Look(OLD), List(Intend(FRESH, Offset(20), OLD))]


def test_an_intent_for_another_segment_is_buried_unseen() -> None:
    work = copy(SEGMENT, FRESH, Marked(OTHER, 1), 1000)
    acts, _ = play(work, None, None, footer(FRESH), None)
    assert acts[0] == List(Intend(FRESH, Offset(20), OTHER))


def test_a_ledger_goes_after_the_proof_and_an_object_that_is_no_good_before() -> None:
    segment = SEGMENT._replace(stored=STORED)
    acts, failed = play(drop(segment), None, None)
    assert acts == [Prove(FRESH, STORED), List(Drop(FRESH, Offset(20)))]
    assert failed is None
    wrong = LogCorrupt("damaged")
    acts, failed = play(drop(segment), wrong, None)
    assert acts == [Prove(FRESH, STORED), List(Reject(FRESH, Offset(20)))]
    assert failed == Failed(wrong)


def test_only_what_is_certainly_gone_leaves_its_grave() -> None:
    graves = [Marked(OLD, 1), Marked(OTHER, 1)]
    acts, _ = play(bury(graves), True, False, None)
    assert acts == [Delete(OLD), Delete(OTHER), List(Unbury((OLD,)))]
    acts, _ = play(bury(graves), False, False)
    assert acts == [Delete(OLD), Delete(OTHER)]


def test_whoever_withdraws_trims_what_has_no_ledger_and_keeps_the_rest() -> None:
    gone = SEGMENT._replace(stored=STORED._replace(ledger_gone=True))
    both = SEGMENT._replace(
        ledger_id=LedgerId(8), base_offset=Offset(20), facts=SegmentFacts(Offset(29), 1, 1),
        stored=STORED,
    )  # fmt: skip
    acts, _ = play(withdraw([gone, both], Marked(OTHER, 1), Offset(20)), None, None, None)
    assert acts == [
        TrimTo(Offset(20)),
        List(Abandon(OTHER)),
        List(Reject(ObjectName(Offset(20), LedgerId(8), 1), Offset(30))),
    ]
