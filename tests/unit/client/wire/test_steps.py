"""Steps: counted items, and work that can be done at once or bit by bit."""

from __future__ import annotations

import pytest

from client.errors import TooManyItems
from client.wire.steps import STEP_ITEMS, ItemCount, Steps, finish


def doubled(count: int) -> Steps[list[int]]:
    items = ItemCount()
    found = []
    for number in range(count):
        if items.is_step_over():
            yield
        found.append(2 * number)
    return found


def test_all_steps_are_run_to_the_end() -> None:
    assert finish(doubled(3)) == [0, 2, 4]
    assert finish(doubled(3 * STEP_ITEMS))[-1] == 6 * STEP_ITEMS - 2


@pytest.mark.parametrize(("count", "pauses"), [(1, 0), (STEP_ITEMS - 1, 0), (3 * STEP_ITEMS, 3)])
def test_a_step_has_so_many_items_and_no_more(count: int, pauses: int) -> None:
    assert len(list(doubled(count))) == pauses


def test_items_are_counted_over_all_lists_before_they_are_looked_at() -> None:
    items = ItemCount(10)
    assert items.add(4) == 4
    assert items.add(6) == 6
    with pytest.raises(TooManyItems, match="11 items or more; at most 10 are allowed"):
        items.add(1)
