"""The collector's pace: what piles up between two ticks, and when old objects are worth a look."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from client.node.process import Collector, Growth


@pytest.fixture
def paced() -> Iterator[Collector]:
    """A collector that nobody but the test calls."""
    was = gc.get_threshold()
    gc.disable()
    yield Collector()
    gc.enable()
    gc.set_threshold(*was)


def piled_up() -> int:
    return len(gc.get_objects(0)) + len(gc.get_objects(1))


def test_a_full_cache_piles_nothing_up(paced: Collector) -> None:
    """As much is released as is taken: by count alone nothing would ever be due."""
    cache = [[n] for n in range(5_000)]
    paced.tick()
    for _ in range(10):
        for n in range(5_000):
            cache[n] = [n]
        assert piled_up() >= 5_000
        paced.tick()
        assert piled_up() < 1_000


def test_old_objects_are_left_alone_while_there_are_no_more_of_them(paced: Collector) -> None:
    before = gc.get_stats()[2]["collections"]
    for _ in range(1_000):
        paced.tick()
    assert gc.get_stats()[2]["collections"] == before


def looks_until_due(growth: Growth, block_count: int) -> int | None:
    """Return how many looks find so many blocks until all is collected; None: it never is."""
    for count in range(1, 100):
        if growth.is_due(block_count):
            return count
    return None


def test_old_objects_are_looked_at_when_everything_grew_by_a_quarter() -> None:
    growth = Growth(8_000_000)
    assert looks_until_due(growth, 9_999_999) is None
    assert looks_until_due(growth, 10_000_000) == 12
    growth.collected(9_000_000)
    assert looks_until_due(growth, 11_249_999) is None
    assert looks_until_due(growth, 11_250_000) == 12


def test_a_small_program_may_grow_by_more() -> None:
    assert looks_until_due(Growth(100_000), 1_099_999) is None
    assert looks_until_due(Growth(100_000), 1_100_000) == 12


def test_what_a_large_request_makes_for_a_while_is_not_worth_a_look() -> None:
    growth = Growth(1_000_000)
    for _ in range(20):
        assert not any(growth.is_due(9_000_000) for _ in range(11))
        assert not growth.is_due(1_500_000)
