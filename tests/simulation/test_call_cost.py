"""A batch costs no more calls than `COST.md` says; who makes it much cheaper writes it down."""

from __future__ import annotations

import pytest

from broker.partition.core.log_state import LogState
from tests.simulation import call_cost

_MOST = 1.15
"""A change of as much has to have a row."""


@pytest.mark.parametrize("name", call_cost.SHAPES)
def test_a_batch_costs_what_the_page_says(name: str) -> None:
    recorded = call_cost.recorded()[name]
    found = call_cost.measure(call_cost.SHAPES[name])
    for room, calls in found.items():
        share = calls / recorded[room]
        assert 1 / _MOST <= share <= _MOST, f"{room}: {calls:.0f} calls, {recorded[room]:.0f} known"
    total = sum(found.values()) / sum(recorded.values())
    assert 1 / _MOST <= total <= _MOST


def test_calls_more_for_each_batch_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, more = call_cost.SHAPES["five under way"], 20
    before = call_cost.measure(shape)
    original = LogState.has_room

    def has_room(self: LogState, size: int) -> bool:
        for _ in range(more):
            original(self, size)
        return original(self, size)

    monkeypatch.setattr(LogState, "has_room", has_room)
    after = call_cost.measure(shape)
    assert after["broker"] - before["broker"] == pytest.approx(more, abs=3)
