"""The checkers of histories: silent on good ones, and each broken one is called by its name."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.chaos.judges.checkers import Event, check

PARTITIONS = 3
PRODUCERS = ("a", "b")
NUMBERS = 40


def good(rng: random.Random) -> list[Event]:
    """A history without anomalies: the log, its acknowledgements, and a group that read it all."""
    ends = [0] * PARTITIONS
    due = dict.fromkeys(PRODUCERS, 0)
    log: list[Event] = []
    while due:
        producer = rng.choice(sorted(due))
        number = due[producer]
        partition = number % PARTITIONS
        log.append(
            {
                "f": "log",
                "value": f"{producer}:{number}",
                "partition": partition,
                "offset": ends[partition],
            }
        )
        ends[partition] += 1
        due[producer] = number + 1
        if number + 1 == NUMBERS:
            del due[producer]
    sends = [{**event, "f": "send", "process": event["value"][0], "ms": 0} for event in log]
    polls = [{**event, "f": "poll", "process": "c-0", "group": "c"} for event in log]
    again = [{**event, "process": "c-1"} for event in rng.sample(polls, 5)]
    unknown = [{**event, "offset": -1} for event in rng.sample(sends, 2)]
    return [{"f": "fault", "text": "none", "ms": 0}, *log, *sends, *polls, *again, *unknown]


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["f"] == kind]


def lose(events: list[Event], rng: random.Random) -> None:
    """The end of a partition is gone."""
    gone = max(of(events, "log"), key=lambda event: event["offset"])
    events[:] = [e for e in events if e["f"] == "send" or e.get("value") != gone["value"]]


def duplicate(events: list[Event], rng: random.Random) -> None:
    """A record is appended once more."""
    twice = rng.choice(of(events, "log"))
    end = max(e["offset"] for e in of(events, "log") if e["partition"] == twice["partition"])
    events.append({**twice, "offset": end + 1})


def swap(events: list[Event], rng: random.Random) -> None:
    """Two neighbours of one producer change places, with all that was said of them."""
    log = [e for e in of(events, "log") if e["partition"] == 0 and e["value"].startswith("a:")]
    one, two = log[3]["value"], log[4]["value"]
    names = {one: two, two: one}
    for event in events:
        if "value" in event:
            event["value"] = names.get(event["value"], event["value"])


def misplace(events: list[Event], rng: random.Random) -> None:
    """An acknowledgement names another record's offset."""
    event = rng.choice([e for e in of(events, "send") if e["offset"] > 0])
    event["offset"] -= 1


def misread(events: list[Event], rng: random.Random) -> None:
    """A consumer saw another record at an offset."""
    rng.choice(of(events, "poll"))["value"] = "a:99999"


def skip(events: list[Event], rng: random.Random) -> None:
    """A group was never given a record."""
    value = rng.choice(of(events, "poll"))["value"]
    events[:] = [e for e in events if e["f"] != "poll" or e["value"] != value]


def tear(events: list[Event], rng: random.Random) -> None:
    """An offset in the middle of a partition has no record."""
    inner = [e for e in of(events, "log") if e["offset"] == 5]
    gone = rng.choice(inner)
    events[:] = [e for e in events if e.get("value") != gone["value"]]


BROKEN: list[tuple[Callable[[list[Event], random.Random], None], str]] = [
    (lose, "lost-write"),
    (duplicate, "duplicate"),
    (swap, "nonmonotonic-send"),
    (misplace, "inconsistent-offsets"),
    (misread, "inconsistent-offsets"),
    (skip, "unseen"),
    (tear, "gap"),
]


@pytest.mark.parametrize("seed", range(50))
def test_a_good_history_has_no_anomaly(seed: int) -> None:
    assert check(good(random.Random(seed))) == []


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("spoil", "name"), BROKEN, ids=[spoil.__name__ for spoil, _ in BROKEN])
def test_a_broken_history_is_called_by_its_name(
    spoil: Callable[[list[Event], random.Random], None], name: str, seed: int
) -> None:
    rng = random.Random(seed)
    events = good(rng)
    spoil(events, rng)
    assert name in {anomaly.name for anomaly in check(events)}
