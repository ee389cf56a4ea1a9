"""Transitions of ledger metadata."""

from __future__ import annotations

import pytest

from client.errors import LocalProtocolError
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata, LedgerState

B1, B2, B3, B4 = (BookieId(f"b{i}:3181") for i in range(1, 5))


def fresh() -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        fragments=(Fragment(EntryId(0), (B1, B2, B3)),),
        custom_metadata={"owner": b"me"},
        c_token=77,
    )


def test_a_new_ledger_is_open_and_empty() -> None:
    ledger = fresh()
    assert (ledger.state, ledger.last_entry, ledger.length) == (LedgerState.OPEN, NO_ENTRY, 0)
    assert not ledger.is_closed


def test_in_recovery_keeps_everything_but_state_and_token() -> None:
    ledger = fresh().in_recovery()
    assert ledger.state is LedgerState.IN_RECOVERY
    assert ledger.fragments == fresh().fragments
    assert ledger.custom_metadata == {"owner": b"me"}
    assert ledger.c_token == 0


def test_closed_has_its_end() -> None:
    for ledger in (fresh(), fresh().in_recovery()):
        closed = ledger.closed(EntryId(9), 123)
        assert closed.is_closed
        assert (closed.last_entry, closed.length, closed.c_token) == (9, 123, 0)


def test_new_ensemble_is_appended() -> None:
    ledger = fresh().with_ensemble(EntryId(5), (B4, B2, B3))
    assert ledger.fragments == (
        Fragment(EntryId(0), (B1, B2, B3)),
        Fragment(EntryId(5), (B4, B2, B3)),
    )
    assert ledger.last_fragment.ensemble == (B4, B2, B3)
    assert ledger.c_token == 0


def test_new_ensemble_with_the_same_first_entry_replaces() -> None:
    ledger = fresh().with_ensemble(EntryId(5), (B4, B2, B3)).with_ensemble(EntryId(5), (B4, B1, B3))
    assert [fragment.first_entry for fragment in ledger.fragments] == [0, 5]
    assert ledger.last_fragment.ensemble == (B4, B1, B3)


def test_new_ensemble_below_the_last_fragment_is_refused() -> None:
    """TLA+ OnlyValidFragments, issue 2615."""
    ledger = fresh().with_ensemble(EntryId(5), (B4, B2, B3))
    with pytest.raises(LocalProtocolError):
        ledger.with_ensemble(EntryId(4), (B1, B2, B3))


@pytest.mark.parametrize("ensemble", [(B1, B2), (B1, B2, B2), (B1, B2, B3, B4)])
def test_an_ensemble_has_distinct_bookies_of_the_right_number(
    ensemble: tuple[BookieId, ...],
) -> None:
    with pytest.raises(LocalProtocolError):
        fresh().with_ensemble(EntryId(5), ensemble)


def test_closed_is_final() -> None:
    closed = fresh().closed(EntryId(3), 10)
    for change in (
        closed.in_recovery,
        lambda: closed.closed(EntryId(3), 10),
        lambda: closed.with_ensemble(EntryId(4), (B4, B2, B3)),
        lambda: closed.with_fragments(closed.fragments),
    ):
        with pytest.raises(LocalProtocolError):
            change()


def test_fragment_of_an_entry() -> None:
    ledger = fresh().with_ensemble(EntryId(5), (B4, B2, B3))
    assert ledger.fragment_of(EntryId(0)).first_entry == 0
    assert ledger.fragment_of(EntryId(4)).first_entry == 0
    assert ledger.fragment_of(EntryId(5)).first_entry == 5
    assert ledger.fragment_of(EntryId(500)).first_entry == 5
    with pytest.raises(LocalProtocolError):
        ledger.fragment_of(NO_ENTRY)


def test_schedule_has_its_quorums() -> None:
    schedule = fresh().schedule
    assert (schedule.ensemble_size, schedule.write_quorum, schedule.ack_quorum) == (3, 2, 2)
