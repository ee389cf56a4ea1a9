"""How far a new ledger may shrink when bookies are missing."""

from __future__ import annotations

import pytest

from client.errors import IncorrectParameter
from client.ledger.core.ledger_metadata import Schedule, fitting


def sizes(schedule: Schedule) -> tuple[int, int, int]:
    return schedule.ensemble_size, schedule.write_quorum, schedule.ack_quorum


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_nothing_shrinks_unasked(count: int) -> None:
    assert sizes(fitting(Schedule(3, 3, 2), count, striping=False)) == (3, 3, 2)


def test_shrink_stripe_down_to_the_write_quorum() -> None:
    wanted = Schedule(5, 3, 2)
    found = [sizes(fitting(wanted, count, striping=True)) for count in (9, 5, 4, 3, 2, 0)]
    assert found == [(5, 3, 2), (5, 3, 2), (4, 3, 2), (3, 3, 2), (3, 3, 2), (3, 3, 2)]


def test_shrink_copies_down_to_what_the_caller_names() -> None:
    wanted = Schedule(4, 3, 2)
    found = [
        sizes(fitting(wanted, count, striping=False, write_quorum_min=2))
        for count in (9, 4, 3, 2, 1, 0)
    ]
    assert found == [(4, 3, 2), (4, 3, 2), (3, 3, 2), (2, 2, 2), (2, 2, 2), (2, 2, 2)]


@pytest.mark.parametrize("least", [1, 4])
def test_shrink_copies_never_below_the_ack_quorum(least: int) -> None:
    with pytest.raises(IncorrectParameter):
        fitting(Schedule(4, 3, 2), 9, striping=False, write_quorum_min=least)
