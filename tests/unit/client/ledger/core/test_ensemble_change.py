"""What a writer writes into metadata, and what it makes of what it finds there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from client.errors import LedgerClosed, LedgerFenced, MetadataConflict
from client.ids import BookieId, EntryId
from client.ledger.core.ensemble_change import change_ensemble, close_as_writer
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata

B = [BookieId(f"b{i}") for i in range(6)]


def ledger() -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        fragments=(Fragment(EntryId(0), (B[0], B[1], B[2])),),
    )


def nobody(ensemble: Sequence[BookieId], indices: Sequence[int]) -> Mapping[int, BookieId]:
    return {}


def first_spares(ensemble: Sequence[BookieId], indices: Sequence[int]) -> Mapping[int, BookieId]:
    return dict(zip(indices, B[3:], strict=False))


def test_change_first_entry_starts_the_new_fragment() -> None:
    changed = change_ensemble(ledger(), {1: B[1]}, EntryId(7), first_spares)
    assert changed is not None
    assert changed.fragments == (
        Fragment(EntryId(0), (B[0], B[1], B[2])),
        Fragment(EntryId(7), (B[0], B[3], B[2])),
    )


def test_change_first_replaces_an_empty_last_fragment() -> None:
    changed = change_ensemble(ledger(), {0: B[0], 2: B[2]}, EntryId(0), first_spares)
    assert changed is not None
    assert changed.fragments == (Fragment(EntryId(0), (B[3], B[1], B[4])),)


def test_change_who_only_members_that_are_still_there() -> None:
    """CHANGE-WHO: b1 went in a change that somebody, perhaps we, wrote already."""
    moved = ledger().with_ensemble(EntryId(4), (B[0], B[5], B[2]))
    assert change_ensemble(moved, {1: B[1]}, EntryId(7), first_spares) is None
    changed = change_ensemble(moved, {1: B[1], 2: B[2]}, EntryId(7), first_spares)
    assert changed is not None
    assert changed.last_fragment.ensemble == (B[0], B[5], B[3])


def test_nobody_to_choose_means_nothing_to_write() -> None:
    assert change_ensemble(ledger(), {1: B[1]}, EntryId(7), nobody) is None


def test_as_many_as_can_be_are_replaced() -> None:
    changed = change_ensemble(
        ledger(), {0: B[0], 1: B[1]}, EntryId(7), lambda ensemble, indices: {indices[0]: B[4]}
    )
    assert changed is not None
    assert changed.last_fragment.ensemble == (B[4], B[1], B[2])


def test_change_state_in_recovery_means_fenced() -> None:
    with pytest.raises(LedgerFenced):
        change_ensemble(ledger().in_recovery(), {1: B[1]}, EntryId(7), first_spares)


def test_change_state_closed_means_closed() -> None:
    closed = ledger().closed(EntryId(3), 30)
    with pytest.raises(LedgerClosed):
        change_ensemble(closed, {1: B[1]}, EntryId(7), first_spares)


def test_close_writer_closes_at_its_lac() -> None:
    closed = close_as_writer(ledger(), EntryId(8), 80)
    assert closed == ledger().closed(EntryId(8), 80)


def test_close_writer_leaves_a_recovery_alone() -> None:
    with pytest.raises(LedgerFenced):
        close_as_writer(ledger().in_recovery(), EntryId(8), 80)


def test_close_writer_accepts_the_same_end() -> None:
    assert close_as_writer(ledger().closed(EntryId(8), 80), EntryId(8), 80) is None


@pytest.mark.parametrize("end", [(7, 80), (9, 80), (8, 79)])
def test_close_writer_refuses_another_end(end: tuple[int, int]) -> None:
    with pytest.raises(MetadataConflict):
        close_as_writer(ledger().closed(EntryId(end[0]), end[1]), EntryId(8), 80)
