"""The order of many deadlines."""

from __future__ import annotations

import pytest

from broker.coordinator.core.wakes import Wakes


def due(wakes: Wakes, now_s: float) -> list[str]:
    found = []
    while (name := wakes.pop_due(now_s)) is not None:
        found.append(name)
    return found


def test_names_come_in_the_order_of_their_times() -> None:
    wakes = Wakes()
    assert wakes.first() is None
    for name, at_s in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("never", None)):
        wakes.note(name, at_s)
    assert wakes.first() == 1.0
    assert due(wakes, 0.9) == []
    assert due(wakes, 2.0) == ["a", "b"]
    assert due(wakes, 9.0) == ["c"]
    assert wakes.first() is None


def test_an_earlier_time_wins_and_a_later_one_changes_nothing() -> None:
    wakes = Wakes()
    wakes.note("a", 5.0)
    wakes.note("a", 3.0)
    wakes.note("a", 9.0)
    assert due(wakes, 4.0) == ["a"]
    assert due(wakes, 10.0) == []


def test_what_is_forgotten_is_not_woken() -> None:
    wakes = Wakes()
    wakes.note("a", 1.0)
    wakes.forget("a")
    wakes.forget("unknown")
    assert due(wakes, 2.0) == []
    wakes.note("a", 1.5)
    assert due(wakes, 2.0) == ["a"]


def test_check() -> None:
    wakes = Wakes()
    wakes.note("a", 1.0)
    wakes.check({"a": 2.0, "b": None})
    with pytest.raises(AssertionError):
        wakes.check({"a": 0.5})
    with pytest.raises(AssertionError):
        wakes.check({"b": None})
