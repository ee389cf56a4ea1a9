"""Searching a ledger for an offset: always right, and in few looks."""

from __future__ import annotations

import bisect
import random

import pytest

from client.spark.entry_search import EntrySearch


def look_up(keys: list[int], target: int) -> tuple[int, int]:
    """Return (entry, looks)."""
    search = EntrySearch(target, 0, keys[0], len(keys) - 1, keys[-1])
    looks = 0
    while not search.is_done:
        probe = search.probe()
        search.on_entry(probe, keys[probe])
        looks += 1
    return search.found, looks


@pytest.mark.parametrize("skewed", [False, True])
def test_few_looks_whatever_the_sizes(skewed: bool) -> None:
    rng = random.Random(1)
    keys = [0]
    for index in range(100_000):
        large = skewed and index > 90_000
        keys.append(keys[-1] + (rng.randrange(5000, 9000) if large else rng.randrange(1, 60)))
    looks = []
    for _ in range(500):
        target = rng.randrange(keys[-1])
        entry, count = look_up(keys, target)
        assert entry == bisect.bisect_right(keys, target) - 1
        looks.append(count)
    looks.sort()
    assert looks[250] <= 12
    assert looks[-1] <= 34


def test_of_entries_at_one_offset_the_last_one_counts() -> None:
    assert look_up([0, 5, 5, 5, 9], 5)[0] == 3
    assert look_up([0, 0, 0, 9], 0)[0] == 2


def test_places_outside_of_the_range_say_nothing() -> None:
    search = EntrySearch(50, 10, 40, 12, 60)
    search.on_entry(3, 7)
    assert search.found == 10
    search.on_entry(30, 70)
    assert search.probe() == 11
    search.on_entry(11, 55)
    assert search.is_done
    assert search.found == 10
