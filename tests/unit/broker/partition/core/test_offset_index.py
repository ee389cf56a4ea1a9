"""The sparse index of a ledger."""

from __future__ import annotations

from broker.partition.core.offset_index import SparseIndex
from client.ids import EntryId


def index(*points: tuple[int, int], count_max: int = 100) -> SparseIndex:
    made = SparseIndex(count_max)
    for key, entry in points:
        made.add(key, EntryId(entry))
    return made


def test_neighbours_of_a_key() -> None:
    places = index((10, 1), (20, 5), (30, 9))
    assert [places.at_or_before(key) for key in (9, 10, 19, 20, 99)] == [None, 1, 1, 5, 9]
    assert [places.after(key) for key in (9, 10, 29, 30)] == [1, 5, 9, None]


def test_points_may_come_in_any_order() -> None:
    places = index((30, 9), (10, 1), (20, 5))
    assert [places.at_or_before(key) for key in (15, 25, 35)] == [1, 5, 9]


def test_of_equal_keys_the_last_entry_counts() -> None:
    places = index((10, 4), (10, 2), (10, 7))
    assert len(places) == 1
    assert places.at_or_before(10) == 7


def test_too_many_points_are_thinned_out_but_the_first_stays() -> None:
    places = index(*((key, key) for key in range(100)), count_max=16)
    assert len(places) <= 16
    assert places.at_or_before(0) == 0
    known = [places.at_or_before(key) for key in range(100)]
    assert all(entry is not None and entry <= key for key, entry in enumerate(known))
