"""Searching a ledger for an offset: always right, and in few looks."""

from __future__ import annotations

import bisect
import random

import pytest

from client.ids import EntryId, Offset
from client.log.offset_search import OffsetSearch


def search(
    keys: list[int], target: int, high: int, *, bounds_known: bool = True
) -> tuple[int, int]:
    """Return (entry, looks), searching entries 0 to `high` - 1."""
    low_offset = Offset(keys[0]) if bounds_known else None
    high_offset = Offset(keys[high]) if bounds_known else None
    found = OffsetSearch(
        Offset(target), EntryId(0), EntryId(high), low_offset=low_offset, high_offset=high_offset
    )
    looks = 0
    while not found.is_done:
        probe = found.probe()
        found.on_entry(probe, Offset(keys[probe]))
        looks += 1
    return found.low, looks


def look_up(keys: list[int], target: int, *, bounds_known: bool = True) -> tuple[int, int]:
    return search(keys, target, len(keys) - 1, bounds_known=bounds_known)


@pytest.mark.parametrize("bounds_known", [True, False])
@pytest.mark.parametrize("skewed", [False, True])
def test_few_looks_whatever_the_sizes(skewed: bool, bounds_known: bool) -> None:
    rng = random.Random(1)
    keys = [0]
    for index in range(100_000):
        large = skewed and index > 90_000
        keys.append(keys[-1] + (rng.randrange(5000, 9000) if large else rng.randrange(1, 60)))
    looks = []
    for _ in range(500):
        target = rng.randrange(keys[-1])
        entry, count = look_up(keys, target, bounds_known=bounds_known)
        assert entry == bisect.bisect_right(keys, target) - 1
        looks.append(count)
    looks.sort()
    assert looks[250] <= 12
    assert looks[-1] <= 34


def test_of_entries_at_one_offset_the_last_one_counts() -> None:
    assert look_up([0, 5, 5, 5, 9], 5)[0] == 3
    assert look_up([0, 0, 0, 9], 0)[0] == 2


def test_the_last_entry_at_or_below_without_known_bounds() -> None:
    bases = [0, 0, 5, 9, 9, 30]  # a snapshot stands where the batch after it does
    found = [
        search(bases, target, len(bases), bounds_known=False)[0]
        for target in (0, 4, 5, 8, 9, 29, 30, 99)
    ]
    assert found == [1, 1, 2, 2, 4, 4, 5, 5]


def test_the_span_shrinks_until_the_rest_can_be_read() -> None:
    found = OffsetSearch(Offset(50), EntryId(0), EntryId(16))
    spans = [found.span]
    while found.span > 4:
        probe = found.probe()
        found.on_entry(probe, Offset(probe * 10))
        spans.append(found.span)
    assert spans == sorted(set(spans), reverse=True)
    assert found.low <= 5 < found.high


def test_places_outside_of_the_range_say_nothing() -> None:
    found = OffsetSearch(
        Offset(50), EntryId(10), EntryId(12), low_offset=Offset(40), high_offset=Offset(60)
    )
    found.on_entry(EntryId(3), Offset(7))
    assert found.low == 10
    found.on_entry(EntryId(30), Offset(70))
    assert found.probe() == 11
    found.on_entry(EntryId(11), Offset(55))
    assert found.is_done
    assert found.low == 10
