"""Who of an ensemble gets adds, between two changes of it."""

from __future__ import annotations

from client.ids import BookieId
from client.ledger.core.members import PROBE_INTERVAL_S, Members, mask_of

B0, B1, B2, B3 = (BookieId(f"b{i}") for i in range(4))


def members(*failed: int) -> Members:
    made = Members([B0, B1, B2])
    made.failed = {index: made.ensemble[index] for index in failed}
    return made


def test_who_failed_gets_nothing_while_a_change_replaces_it() -> None:
    made = members(1)
    assert made.begin_change() == {1: B1}
    made.check()
    assert (made.failed, made.unsent) == ({}, 0b010)
    assert made.is_out(1)
    assert not made.is_out(0)
    assert made.replaced_by([B0, B3, B2]) == 0b010
    made.end_change([B0, B3, B2], 5.0)
    made.check()
    assert (made.ensemble, made.unsent, made.suspended) == ((B0, B3, B2), 0, [])


def test_who_could_not_be_replaced_is_suspended_probed_and_resumed() -> None:
    """CHANGE-SUSPEND."""
    made = members(0, 2)
    made.begin_change()
    made.end_change([B0, B1, B3], 5.0)
    made.check()
    assert (made.suspended, made.unsent) == ([B0], 0b001)
    assert made.take_due_probes(0b111, 5.0) == 0
    assert made.take_due_probes(0b110, 5.0 + PROBE_INTERVAL_S) == 0, "it is not in that write set"
    assert made.take_due_probes(0b111, 5.0 + PROBE_INTERVAL_S) == 0b001
    assert made.take_due_probes(0b111, 5.0 + PROBE_INTERVAL_S) == 0, "one probe at a time"
    assert not made.resume(1)
    assert made.resume(0)
    assert (made.suspended, made.unsent) == ([], 0)


def test_a_change_takes_over_who_is_suspended() -> None:
    made = members(0)
    made.begin_change()
    made.end_change([B0, B1, B2], 5.0)
    made.failed = {2: B2}
    assert made.begin_change() == {0: B0, 2: B2}
    made.check()
    assert made.suspended == []


def test_failures_of_those_who_were_replaced_meanwhile_are_settled() -> None:
    made = members(1)
    made.begin_change()
    made.failed = {0: B0, 1: B1, 2: B2}
    made.end_change([B3, B1, B2], 5.0)
    assert made.failed == {2: B2}, "0 was replaced, 1 is suspended"


def test_a_planned_change_suspends_nobody() -> None:
    """CHANGE-SLOW: without a replacement a slow member stays what it was."""
    made = members()
    assert made.begin_planned_change(2) == {2: B2}
    assert made.unsent == 0b100
    made.end_change([B0, B1, B2], 5.0)
    made.check()
    assert (made.suspended, made.unsent) == ([], 0)


def test_after_the_end_nobody_waits_for_a_change() -> None:
    made = members(1)
    made.begin_change()
    made.give_up_change()
    made.check()
    assert (made.changing, made.unsent) == ({}, 0)


def test_masks() -> None:
    assert mask_of([0, 2]) == 0b101
    assert members().named(0b101) == {0: B0, 2: B2}
