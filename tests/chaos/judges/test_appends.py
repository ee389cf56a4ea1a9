"""The checker of appending transactions: a good history, and every way to break it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.judges.appends import Histories, copied

Events = list[dict[str, Any]]
Lists = dict[int, list[tuple[int, str]]]


def _begin(name: str, n: int, *, commit: bool = True, **appends: list[str]) -> dict[str, Any]:
    rows = {key.removeprefix("p"): values for key, values in appends.items()}
    return {"f": "begin", "id": name, "n": n, "commit": commit, "appends": rows}


def _read(name: str, n: int, reader: str, *rows: tuple[int, int, str]) -> dict[str, Any]:
    return {"f": "read", "id": name, "n": n, "reader": reader, "rows": [*map(list, rows)]}


def _end(name: str, n: int) -> dict[str, Any]:
    return {"f": "end", "id": name, "n": n}


EVENTS: Events = [
    _begin("a", 1, p0=["a:1:0", "a:1:1"], p1=["a:1:2"]),
    _end("a", 1),
    _begin("b", 1, commit=False, p0=["b:1:0"]),
    _read("b", 1, "r", (0, 0, "a:1:0"), (0, 1, "a:1:1")),
    _end("b", 1),
    _begin("b", 2, p1=["b:2:0"]),
    _read("b", 2, "r", (1, 0, "a:1:2")),
    _begin("a", 2, p0=["a:2:0"]),
    _read("a", 2, "s", (0, 0, "a:1:0"), (0, 1, "a:1:1"), (1, 0, "a:1:2"), (1, 2, "b:2:0")),
    _end("a", 2),
    _begin("b", 3, p0=["b:3:0"]),
]
LISTS: Lists = {
    0: [(0, "a:1:0"), (1, "a:1:1"), (5, "a:2:0")],
    1: [(0, "a:1:2"), (2, "b:2:0")],
}
"""b:2 has no end and is there, b:3 has none and is not; offsets of markers and of what was aborted
are passed over."""


def _names(events: Events, lists: Lists) -> set[str]:
    return {anomaly.name for anomaly in Histories(events, lists).anomalies()}


def test_a_good_history_is_well() -> None:
    assert _names(EVENTS, LISTS) == set()


def _lost(events: Events, lists: Lists) -> None:
    lists[0].pop()


def _torn(events: Events, lists: Lists) -> None:
    events.append(_begin("c", 1, p0=["c:1:0"], p1=["c:1:1"]))
    lists[1].append((9, "c:1:1"))


def _twice(events: Events, lists: Lists) -> None:
    lists[1].append((9, "b:2:0"))


def _aborted_in_the_log(events: Events, lists: Lists) -> None:
    lists[0].append((9, "b:1:0"))


def _aborted_read(events: Events, lists: Lists) -> None:
    events.append(_read("b", 3, "t", (0, 3, "b:1:0")))


def _unknown_read(events: Events, lists: Lists) -> None:
    events.append(_read("b", 3, "t", (0, 7, "b:3:0")))


def _intermediate(events: Events, lists: Lists) -> None:
    events.append(_read("b", 3, "t", (0, 0, "a:1:0"), (0, 5, "a:2:0")))


def _swapped(events: Events, lists: Lists) -> None:
    lists[0] = [(0, "a:1:0"), (1, "a:2:0"), (5, "a:1:1")]
    for event in events:
        event.pop("rows", None)
    events[:] = [event for event in events if event["f"] != "read"]


def _circular(events: Events, lists: Lists) -> None:
    events.append(_read("b", 2, "t", (0, 5, "a:2:0")))


def _own(events: Events, lists: Lists) -> None:
    events.append(_read("a", 2, "t", (0, 5, "a:2:0")))


@pytest.mark.parametrize(
    ("break_it", "names"),
    [
        (_lost, {"lost-write"}),
        (_torn, {"torn-transaction"}),
        (_twice, {"duplicate", "G0 write-cycle"}),
        (_aborted_in_the_log, {"G1a aborted-read"}),
        (_aborted_read, {"G1a aborted-read"}),
        (_unknown_read, {"G1a aborted-read"}),
        (_intermediate, {"G1b intermediate-read"}),
        (_swapped, {"G0 write-cycle"}),
        (_circular, {"G1c circular-information-flow"}),
        (_own, {"G1c circular-information-flow"}),
    ],
)
def test_every_anomaly_has_its_name(
    break_it: Callable[[Events, Lists], None], names: set[str]
) -> None:
    events, lists = copy.deepcopy(EVENTS), copy.deepcopy(LISTS)
    break_it(events, lists)
    assert _names(events, lists) == names


SOURCE: Lists = {0: [(0, "x"), (2, "y")], 1: [(0, "z")]}
DERIVED: Lists = {0: [(0, "0:0=x"), (3, "1:0=z")], 1: [(1, "0:2=y")]}


@pytest.mark.parametrize(
    ("derived", "names"),
    [
        (DERIVED, set()),
        ({0: DERIVED[0], 1: []}, {"exactly-once lost-write"}),
        ({**DERIVED, 2: [(0, "0:2=y")]}, {"exactly-once duplicate"}),
        ({**DERIVED, 2: [(0, "0:7=w")]}, {"exactly-once aborted-read"}),
        ({0: [(0, "0:2=y"), (1, "0:0=x"), (2, "1:0=z")]}, {"exactly-once disorder"}),
    ],
)
def test_a_copy_has_each_record_once_in_its_order(derived: Lists, names: set[str]) -> None:
    assert {anomaly.name for anomaly in copied(SOURCE, derived)} == names
