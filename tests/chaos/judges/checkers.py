"""What a history of clients must never show, by the names that Jepsen uses.

A history is a list of events, one JSON object a line:

    {"f": "send", "process": p, "value": v, "partition": n, "offset": o, "ms": t}   acknowledged
    {"f": "poll", "process": p, "group": g, "value": v, "partition": n, "offset": o}
    {"f": "log",  "value": v, "partition": n, "offset": o}    the audit at the end, in order
    {"f": "fault", "text": what, "ms": t}

The offset of a send is -1 where the broker knew the record as a duplicate, and not its place.
Values are `producer:number`; a producer sends its numbers in order, each to the partition of its
key. Each checker returns the anomalies it found; none means that all is well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

Event = dict[str, Any]
Place = tuple[int, int]


class Anomaly(NamedTuple):
    """Something a log must not do."""

    name: str
    text: str


class History:
    """Events by kind, and what follows from them at once."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.sends: list[Event] = []
        self.polls: list[Event] = []
        self.log: list[Event] = []
        kinds = {"send": self.sends, "poll": self.polls, "log": self.log}
        for event in events:
            if event["f"] in kinds:
                kinds[event["f"]].append(event)
        self.at: dict[Place, str] = {place(event): event["value"] for event in self.log}


def place(event: Event) -> Place:
    """Where an event says its record is."""
    return event["partition"], event["offset"]


def _shown(name: str, found: Sequence[str]) -> list[Anomaly]:
    return [Anomaly(name, f"{len(found)}, as {', '.join(found[:5])}")] if found else []


def lost(history: History) -> list[Anomaly]:
    """T1: acknowledged, and not in the log."""
    there = set(history.at.values())
    return _shown("lost-write", [e["value"] for e in history.sends if e["value"] not in there])


def duplicated(history: History) -> list[Anomaly]:
    """T3: in the log more than once."""
    counts = Counter(event["value"] for event in history.log)
    return _shown("duplicate", [f"{v} x{n}" for v, n in counts.items() if n > 1])


def reordered(history: History) -> list[Anomaly]:
    """T4: a producer's numbers do not ascend within a partition."""
    last: dict[tuple[str, int], int] = {}
    wrong = []
    for event in history.log:
        producer, _, number = event["value"].partition(":")
        key = (producer, event["partition"])
        if int(number) <= last.get(key, -1):
            wrong.append(event["value"])
        last[key] = int(number)
    return _shown("nonmonotonic-send", wrong)


def inconsistent(history: History) -> list[Anomaly]:
    """T2: two different answers to what is at an offset."""
    wrong = [
        f"{event['f']} of {event['value']} at {place(event)}: {history.at.get(place(event))}"
        for event in [*history.sends, *history.polls]
        if event["offset"] >= 0 and history.at.get(place(event)) != event["value"]
    ]
    return _shown("inconsistent-offsets", wrong)


def gaps(history: History) -> list[Anomaly]:
    """C6: offsets that nobody can read."""
    ends: dict[int, int] = defaultdict(int)
    wrong = []
    for partition, offset in (place(event) for event in history.log):
        if offset != ends[partition]:
            wrong.append(f"partition {partition}: {offset} after {ends[partition] - 1}")
        ends[partition] = offset + 1
    return _shown("gap", wrong)


def unseen(history: History) -> list[Anomaly]:
    """T1, T11: a group never saw a record: skipped by a poll, or by a commit too far."""
    seen: dict[str, set[Place]] = defaultdict(set)
    for event in history.polls:
        seen[event["group"]].add(place(event))
    return [
        anomaly
        for group, places in seen.items()
        for anomaly in _shown("unseen", [f"{group}: {p}" for p in history.at if p not in places])
    ]


CHECKERS: Final[tuple[Callable[[History], list[Anomaly]], ...]] = (
    lost,
    duplicated,
    reordered,
    inconsistent,
    gaps,
    unseen,
)


def check(events: Iterable[Event]) -> list[Anomaly]:
    """Return every anomaly of a history."""
    history = History(events)
    return [anomaly for checker in CHECKERS for anomaly in checker(history)]
