"""Calls that wait for a number."""

from __future__ import annotations

from collections.abc import Callable

from broker.partition.partition import WatermarkWaits


def call(name: str, heard: list[str]) -> Callable[[], None]:
    return lambda: heard.append(name)


def test_calls_come_in_the_order_of_their_thresholds() -> None:
    waits, heard = WatermarkWaits(), []
    for name, above in (("b", 10), ("a", 5), ("c", 10), ("d", 11)):
        waits.add(above, call(name, heard))
    assert waits.on_reached(5) == []
    for due in waits.on_reached(11):
        due()
    assert heard == ["a", "b", "c"]
    assert len(waits) == 1


def test_a_cancelled_call_never_comes() -> None:
    waits, heard = WatermarkWaits(), []
    ticket = waits.add(1, call("a", heard))
    waits.add(1, call("b", heard))
    waits.cancel(ticket)
    waits.cancel(ticket)
    for due in waits.on_reached(2):
        due()
    assert heard == ["b"]


def test_cancelled_calls_do_not_pile_up() -> None:
    waits = WatermarkWaits()
    for number in range(10_000):
        waits.cancel(waits.add(number, lambda: None))
    assert len(waits) == 0
    assert len(waits._heap) < 100


def test_drain_returns_the_rest_in_order() -> None:
    waits, heard = WatermarkWaits(), []
    waits.add(9, call("b", heard))
    waits.cancel(waits.add(1, call("x", heard)))
    waits.add(3, call("a", heard))
    for due in waits.drain():
        due()
    assert heard == ["a", "b"]
    assert waits.on_reached(100) == []
