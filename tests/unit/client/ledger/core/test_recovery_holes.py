"""HOLES in recovery: who is found to lack entries, and when that is known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from client.errors import BookieUnavailable, DataUnknown, DigestMismatch, LedgerError, NoSuchLedger
from client.ids import BookieId
from client.ledger.core.adds import UnderReplicated
from client.ledger.core.recovery import Recovered, RecoveryEffect
from tests.unit.client.ledger.core.recovery_driver import NONE, B, Run, entry, ledger


def told(effects: Sequence[RecoveryEffect]) -> tuple[BookieId, ...]:
    return next((e.bookies for e in effects if isinstance(e, UnderReplicated)), ())


def recover_to_4(run: Run) -> list[RecoveryEffect]:
    """b0 and b1 have entry 5 with LAC 4; nobody but them has it, so it is dropped... or kept."""
    run.fenced(0, entry(4, 4))
    run.fenced(1, entry(4, 4))
    run.read(5, NONE)
    return run.read(5, NONE)


def test_a_bookie_that_could_not_be_fenced_may_lack_entries() -> None:
    for error in (BookieUnavailable("down"), DataUnknown("limbo"), DigestMismatch("damaged")):
        run = Run(ledger())
        assert told(recover_to_4(run)) == (), "b2 may still answer"
        assert told(run.fenced(2, error)) == (B[2],)


def test_the_answer_may_come_before_the_end() -> None:
    run = Run(ledger())
    assert run.fenced(2, BookieUnavailable("down")) == []
    effects = recover_to_4(run)
    assert isinstance(effects[0], Recovered)
    assert told(effects) == (B[2],)


@pytest.mark.parametrize(
    ("answer", "lacks"),
    [(entry(4, 4), False), (entry(7, 4), False), (entry(3, 3), True), (NoSuchLedger("x"), True)],
)
def test_a_bookie_whose_last_entry_is_too_early_lacks_the_rest(
    answer: LedgerError, lacks: bool
) -> None:
    """It was suspended when the writer died, and came back since."""
    run = Run(ledger())
    recover_to_4(run)
    assert told(run.fenced(2, answer)) == ((B[2],) if lacks else ())


def test_striped_bookies_are_asked_for_their_own_last_entry_only() -> None:
    """E 4, Qw 2: up to entry 4, b2 holds 1 and 2 and b3 holds 2 and 3."""
    run = Run(ledger((4, 2, 2)))
    for member, last in ((0, 4), (1, 4), (2, 2)):
        run.fenced(member, entry(last, 4))
    run.read(5, NONE)
    assert told(run.fenced(3, entry(2, 1))) == (B[3],)
    run = Run(ledger((4, 2, 2)))
    for member, last in ((0, 4), (1, 4), (2, 2)):
        run.fenced(member, entry(last, 4))
    run.read(5, NONE)
    assert told(run.fenced(3, entry(3, 1))) == ()


def test_nothing_is_expected_of_a_last_fragment_without_confirmed_entries() -> None:
    """Issue 2615's ledger: its entries belong to the fragment before."""
    run = Run(ledger((3, 3, 2), (5, [B[0], B[1], B[3]])))
    run.fenced(0, entry(4, 4))
    run.fenced(1, entry(4, 4))
    run.read(5, NONE)
    run.read(5, NONE)
    assert told(run.fenced(2, BookieUnavailable("down"))) == ()


def test_a_recovery_add_that_fails_leaves_a_hole() -> None:
    run = Run(ledger(), window=2)
    run.fenced(0, entry(5, 4))
    run.fenced(1, entry(5, 4))
    run.fenced(2, entry(4, 3))
    run.read(5, entry(5, 4))
    run.read(6, NONE)
    run.read(6, NONE)
    run.stored(5, 0)
    effects = run.stored(5, 1)
    assert isinstance(effects[0], Recovered)
    assert told(effects) == (), "b2 has not answered"
    assert told(run.failed(5, 2)) == (B[2],)
    assert run.stored(5, 2) == [], "once"


def test_a_recovery_that_fails_tells_nothing() -> None:
    run = Run(ledger())
    run.fenced(0, entry(4, 4))
    run.fenced(1, entry(4, 4))
    run.read(5, NONE)
    run.read(5, BookieUnavailable("down"))
    run.read(5, BookieUnavailable("down"))
    assert told(run.fenced(2, BookieUnavailable("down"))) == ()
