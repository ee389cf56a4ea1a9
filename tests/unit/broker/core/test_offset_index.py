"""Sparse index and bisection."""

from __future__ import annotations

from broker.core.offset_index import OffsetSearch, SparseIndex
from client.ids import EntryId, Offset


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


def search(bases: list[int], target: int) -> int:
    found = OffsetSearch(Offset(target), EntryId(0), EntryId(len(bases)))
    while found.span > 1:
        probe = found.probe()
        found.on_entry(probe, Offset(bases[probe]))
    return found.low


def test_bisection_finds_the_last_entry_at_or_below() -> None:
    bases = [0, 0, 5, 9, 9, 30]  # a snapshot stands where the batch after it does
    assert [search(bases, target) for target in (0, 4, 5, 8, 9, 29, 30, 99)] == [
        1, 1, 2, 2, 4, 4, 5, 5,
    ]  # fmt: skip
