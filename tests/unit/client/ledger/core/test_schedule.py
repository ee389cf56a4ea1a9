"""Striping and quorum coverage, against a brute-force twin."""

from __future__ import annotations

from itertools import combinations

import pytest

from client.errors import IncorrectParameter
from client.ids import EntryId
from client.ledger.core.schedule import Schedule, schedule_of

SIZES = [
    (ensemble, write, ack)
    for ensemble in range(1, 6)
    for write in range(1, ensemble + 1)
    for ack in range(1, write + 1)
]


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
