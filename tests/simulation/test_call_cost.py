"""A batch costs no more calls, and passes no more files, than `COST.md` says."""

from __future__ import annotations

import re

import pytest

from broker.partition.core.log_state import LogState
from tests.simulation import call_cost

_MOST = 1.15
"""A change of as much has to have a row."""
_FILES_MAX = 40


@pytest.mark.parametrize("name", call_cost.SHAPES)
def test_a_batch_costs_what_the_page_says(name: str) -> None:
    recorded = call_cost.recorded()[name]
    found = call_cost.measure(call_cost.SHAPES[name])
    files = found.pop(call_cost.FILES)
    assert files <= min(recorded.pop(call_cost.FILES), _FILES_MAX), "a batch passes more files"
    for room, calls in found.items():
        assert calls <= _MOST * recorded[room], f"{room}: {calls:.0f}, {recorded[room]:.0f} known"
    assert sum(found.values()) <= _MOST * sum(recorded.values())


def test_the_walk_of_a_batch_names_every_file_that_it_passes() -> None:
    page = (call_cost.ROOT / "broker/README.md").read_text(encoding="utf-8")
    walk = page.split("\n### Produce\n")[1].split("\n### ")[0]
    named = set(re.findall(r"`([\w/]+\.py)`", walk))
    found = call_cost.passed(call_cost.by_file(call_cost.SHAPES["one at a time"]))
    assert {name for name in found if not {name, name.removeprefix("broker/")} & named} == set()


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
