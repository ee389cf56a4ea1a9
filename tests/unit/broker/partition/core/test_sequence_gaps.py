"""Which gaps in a producer's sequences a broker may have made itself."""

import pytest

from broker.partition.core import sequence_gaps
from broker.partition.core.producer_state import SEQUENCE_MODULUS
from broker.partition.core.sequence_gaps import SequenceGaps, is_gap
from tests.unit.broker.partition.core.test_producer_state import header


def test_any_gap_may_be_ours_until_the_leadership_has_settled() -> None:
    gaps = SequenceGaps(settled_s=5.0)
    assert gaps.is_settling(4.9)
    assert not gaps.is_settling(5.0)


def test_what_was_refused_for_want_of_room_explains_its_own_gap_only() -> None:
    gaps = SequenceGaps(settled_s=0.0)
    gaps.on_no_room(header(10, pid=1, epoch=3))
    follower = header(15, pid=1, epoch=3)
    assert gaps.lacked_room(follower, expected=10)
    assert not gaps.lacked_room(follower, expected=11)
    assert not gaps.lacked_room(header(15, pid=1, epoch=4), expected=10)
    assert not gaps.lacked_room(header(15, pid=2, epoch=3), expected=10)


def test_the_latest_refusal_of_a_producer_counts() -> None:
    gaps = SequenceGaps(settled_s=0.0)
    gaps.on_no_room(header(10))
    gaps.on_no_room(header(20))
    assert gaps.lacked_room(header(25), expected=20)
    assert not gaps.lacked_room(header(25), expected=10)


def test_many_refused_producers_cost_bounded_memory() -> None:
    gaps = SequenceGaps(settled_s=0.0)
    for pid in range(sequence_gaps._REMEMBERED_MAX + 1):
        gaps.on_no_room(header(10, pid=pid))
    assert not gaps.lacked_room(header(15, pid=0), expected=10)
    assert gaps.lacked_room(header(15, pid=sequence_gaps._REMEMBERED_MAX), expected=10)


@pytest.mark.parametrize(
    ("first", "expected", "found"),
    [
        (5, 5, False),
        (6, 5, True),
        (4, 5, False),
        (0, SEQUENCE_MODULUS - 1, True),
        (SEQUENCE_MODULUS - 1, 0, False),
    ],
)
def test_a_gap_is_ahead_also_around_the_end_of_the_numbers(
    first: int, expected: int, found: bool
) -> None:
    assert is_gap(first, expected) is found
