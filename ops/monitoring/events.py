"""Every event that the programs log, as found in their source.

Covers reading log calls: the table in `EVENTS.md` is held to what it finds, and so is the form
that `client/node/logs.py` relies on. `python -m ops.monitoring.events` says what the table lacks.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DOCUMENT: Final = Path(__file__).with_name("EVENTS.md")
PACKAGES: Final = ("bookie", "broker", "client", "ops")
_LEVELS: Final = {"exception": "error", "log": "warning"}
"""What a method logs at, where its name does not say; `log` is a warning at most."""
_METHODS: Final = ("debug", "info", "warning", "error", *_LEVELS)
_LOGGERS: Final = ("log", "logger", "_log", "_LOG")
_FORM: Final = re.compile(r"[a-z][a-z_]*\.[a-z][a-z_]*( [a-z_]+=[^ =]*%[^ ]+)*")
_ROW: Final = re.compile(r"^\| `([^`]+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", re.M)
DYNAMIC: Final[Mapping[str, frozenset[str]]] = {
    "%s group=%s generation=%d members=%d reason=%s": frozenset(
        ("group.rebalancing", "group.empty", "group.joined", "group.stable")
    ),
    "%s id=%r number=%d producer=%d producer_epoch=%d": frozenset(
        (
            "transaction.timed_out",
            "transaction.aborted_by_operator",
            "transaction.fenced",
            "transaction.id_expired",
        )
    ),
}
"""What coordinators' cores ask to be logged, by the form of the call that does it (`Event` in
`group_types.py`, `TransactionEvent` in `transaction.py`)."""


class Event(NamedTuple):
    """One event."""

    name: str
    level: str
    fields: tuple[str, ...]


class Call(NamedTuple):
    """One call that logs, and what it says: the format, or its source if that is not constant."""

    place: str
    level: str
    text: str


def calls() -> Iterator[Call]:
    """Yield every call that logs."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.is_relative_to(ROOT / "client/spark"):
                continue  # it logs into Spark's own files
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    method = node.func.attr
                    if method in _METHODS and ast.unparse(node.func.value) in _LOGGERS:
                        yield _call(f"{path.relative_to(ROOT)}:{node.lineno}", method, node)


def _call(place: str, method: str, node: ast.Call) -> Call:
    first = node.args[1 if method == "log" else 0]
    constant = isinstance(first, ast.Constant) and isinstance(first.value, str)
    text = str(first.value) if constant and isinstance(first, ast.Constant) else ast.unparse(first)
    return Call(place, _LEVELS.get(method, method), text)


def fields_of(text: str) -> tuple[str, ...]:
    """Return the names of the fields in a call's text."""
    return tuple(re.findall(r" ([a-z_]+)=", text))


def misshapen() -> list[str]:
    """Return the calls whose text is no event with fields."""
    return [
        f"{call.place}: {call.text!r}"
        for call in calls()
        if not _FORM.fullmatch(call.text) and call.text not in DYNAMIC
    ]


def found() -> dict[str, Event]:
    """Return every event by name; the most severe level, and the fields of all its calls."""
    order = ("debug", "info", "warning", "error")
    events: dict[str, Event] = {}
    for call in calls():
        names = DYNAMIC.get(call.text) or {call.text.split()[0]}
        fields = fields_of(call.text)
        for name in sorted(names):
            known = events.get(name, Event(name, call.level, ()))
            level = max(known.level, call.level, key=order.index)
            events[name] = Event(name, level, tuple(dict.fromkeys([*known.fields, *fields])))
    return dict(sorted(events.items()))


def documented() -> dict[str, Event]:
    """Return every row of the table in `EVENTS.md`."""
    rows = _ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    return {
        name: Event(
            name, level, tuple(word for word in fields.replace("`", "").split(", ") if word)
        )
        for name, level, fields, _ in rows
    }


def row(event: Event, meaning: str = "") -> str:
    """Return the table's line for an event."""
    fields = ", ".join(f"`{name}`" for name in event.fields)
    return f"| `{event.name}` | {event.level} | {fields} | {meaning} |"


def main() -> int:
    """Print the rows that the table lacks, and those that it should not have."""
    events, rows = found(), documented()
    for name, event in events.items():
        if rows.get(name) != event:
            sys.stdout.write(row(event, "TELL") + "\n")
    for name in rows:
        if name not in events:
            sys.stdout.write(f"nobody logs {name}\n")
    return 0 if events == rows else 1


if __name__ == "__main__":
    sys.exit(main())
