"""Transitions of ledger metadata, and the striping of fragments."""

from __future__ import annotations

from itertools import combinations

import pytest

from client.errors import IncorrectParameter, LocalProtocolError
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    Schedule,
    schedule_of,
)

B1, B2, B3, B4 = (BookieId(f"b{i}:3181") for i in range(1, 5))

SIZES = [
    (ensemble, write, ack)
    for ensemble in range(1, 6)
    for write in range(1, ensemble + 1)
    for ack in range(1, write + 1)
]


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


def bits(indices: tuple[int, ...] | set[int]) -> int:
    return sum(1 << index for index in indices)


def test_write_set_walks_round_the_ensemble() -> None:
    schedule = Schedule(4, 3, 2)
    assert [schedule.write_set(EntryId(e)) for e in range(5)] == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 0),
        (3, 0, 1),
        (0, 1, 2),
    ]


def test_write_mask_has_the_bits_of_the_write_set() -> None:
    schedule = Schedule(5, 3, 2)
    for entry in range(7):
        assert schedule.write_mask(EntryId(entry)) == bits(schedule.write_set(EntryId(entry)))


@pytest.mark.parametrize(("ensemble", "write", "ack"), SIZES)
def test_coverage_means_no_ack_quorum_is_unknown(ensemble: int, write: int, ack: int) -> None:
    """The window rule equals its definition: every possible ack quorum has a known member."""
    schedule = Schedule(ensemble, write, ack)
    ack_quorums = {
        frozenset(quorum)
        for entry in range(ensemble)
        for quorum in combinations(schedule.write_set(EntryId(entry)), ack)
    }
    for size in range(ensemble + 1):
        for known in combinations(range(ensemble), size):
            expected = all(quorum & set(known) for quorum in ack_quorums)
            assert schedule.covered(bits(known)) == expected


@pytest.mark.parametrize(("ensemble", "write", "ack"), SIZES)
def test_confirmable_without_means_each_write_set_keeps_a_quorum(
    ensemble: int, write: int, ack: int
) -> None:
    schedule = Schedule(ensemble, write, ack)
    for size in range(ensemble + 1):
        for missing in combinations(range(ensemble), size):
            expected = all(
                len(set(schedule.write_set(EntryId(e))) - set(missing)) >= ack
                for e in range(ensemble)
            )
            assert schedule.confirmable_without(bits(missing)) == expected


def test_without_striping_coverage_is_a_count() -> None:
    schedule = Schedule(5, 5, 3)
    for size in range(6):
        for known in combinations(range(5), size):
            assert schedule.covered(bits(known)) == (size >= 5 - 3 + 1)


def test_striping_needs_less_than_the_whole_ensemble_form() -> None:
    """E6 Qw3 Qa2: opposite indices may stay unknown, though E - Qa + 1 would be 5."""
    assert Schedule(6, 3, 2).covered(bits({1, 2, 4, 5}))
    assert not Schedule(6, 3, 2).covered(bits({2, 3, 4, 5}))


@pytest.mark.parametrize(
    ("write", "ack", "needed"), [(3, 2, 2), (3, 3, 1), (3, 1, 3), (5, 3, 3), (1, 1, 1)]
)
def test_negatives_needed(write: int, ack: int, needed: int) -> None:
    assert Schedule(5, write, ack).negatives_needed == needed


@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0)])
def test_impossible_quorums_are_refused(sizes: tuple[int, int, int]) -> None:
    for make in (Schedule, schedule_of):
        with pytest.raises(IncorrectParameter):
            make(*sizes)


def test_ledgers_of_a_kind_share_one_schedule() -> None:
    assert schedule_of(5, 3, 2) is schedule_of(5, 3, 2)
    assert schedule_of(5, 3, 2).write_sets == Schedule(5, 3, 2).write_sets
