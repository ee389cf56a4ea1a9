"""Logs: one line per event, for people or as JSON.

A call names its event and the fields it has, and nothing else:

    log.info("ledger.fenced ledger=%d bookie=%s", ledger_id, bookie)

The event's name is constant, so lines can be counted, searched and alerted on; ids have the same
name everywhere (topic, partition, ledger, bookie, broker, group, session; `log` is a partition as
one word, `shard` one of `__consumer_offsets`). Every event is listed
in `ops/monitoring/EVENTS.md`; a test compares that list with the calls.

    text   2026-11-20 18:02:11.042 INFO    ledger.fenced ledger=12 bookie=b3
    json   {"ts": "2026-11-20T18:02:11.042Z", "level": "info", "component": "bookie", "node": "b1",
            "event": "ledger.fenced", "ledger": 12, "bookie": "b3"}

In text, a value with spaces or quotes is quoted, so what a client said cannot look like fields of
ours, and an exception's lines are set in, so none of them can look like another line.

An exception is one field, `exception`. Lines of foreign libraries have the event `library.line`.
A warning that repeats itself (same event, same ids) is written `_BURST` times within `_WINDOW_S`;
the next one after that says how many were left out, as `left_out`. A line that a client can cause
as often as it likes is given `extra=AT_WILL`: whatever its level and its fields, which may be the
client's words, it is written `_AT_WILL_BURST` times at most.

Covers how lines look. It belongs to programs: libraries only log.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TextIO

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

IDS: Final = (
    "topic", "partition", "log", "shard", "group", "ledger", "bookie", "broker", "session",
    "directory", "number", "path", "peer",
)  # fmt: skip
"""Fields that say what an event is about: with the same values it is the same event again."""
LIBRARY: Final = "library.line"
AT_WILL: Final = {"at_will": True}
"""`extra` of a call that logs what a client can cause as often as it likes."""
_WINDOW_S: Final = 10.0
_BURST: Final = 5
_AT_WILL_BURST: Final = 50
_SECURITY_BURST: Final = 1000
"""Lines of one kind at will, of all users and peers together."""
_REMEMBERED: Final = 1000
_EVENT: Final = re.compile(r"[a-z][a-z_]*\.[a-z][a-z_]*(?= |$)")
_FIELD: Final = re.compile(r"^([a-z_]+)=(.*%.*)$")
_PLACE: Final = re.compile(r"%[#0-9.+-]*[a-zA-Z]")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What would let a client's words look like lines of ours, or steer a terminal."""
_WORD: Final = re.compile(r"[^\s'\"][^\s]*|")
"""What stands for itself as a value."""
_SET_IN: Final = "    "
_NATIVE: Final = ("%s", "%d", "%g", "%.1f", "%.3f")
"""Values of these stay numbers in JSON."""
_FOREIGN: Final = {"kazoo": logging.ERROR, "asyncio": logging.WARNING}
"""What matters of these (lost, expired) is told by the store; the rest is a line per attempt."""


SECURITY: Final = logging.getLogger("security")
"""Who did what, and who was refused what: the logger of these events alone. No level that is set
for others switches it off, and what one peer causes drowns nobody else's lines: `AT_WILL` counts
for each user and peer, and for all of them together only far beyond that."""
SECURITY.setLevel(logging.INFO)


class Line(NamedTuple):
    """What a record says."""

    event: str
    fields: dict[str, Any]


def read(record: logging.LogRecord) -> Line:
    """Return a record's event and fields, values as they were given."""
    event, parts = _parts(record)
    if not event:
        return Line(LIBRARY, {"logger": record.name, "message": record.getMessage()})
    return Line(event, {name: _value(template, values) for name, template, values in parts})


def _parts(record: logging.LogRecord) -> tuple[str, list[tuple[str, str, tuple[Any, ...]]]]:
    """Return a record's event, "" for lines of others, and (name, template, values) of fields."""
    text = record.msg if isinstance(record.msg, str) else str(record.msg)
    named = _EVENT.match(text)
    if named is None:
        return "", []
    given = iter(record.args if isinstance(record.args, tuple) else (record.args,))
    parts = []
    for word in text[named.end() :].split():
        values = tuple(next(given, None) for _ in _PLACE.findall(word))
        found = _FIELD.match(word)
        if found is not None:
            parts.append((found[1], found[2], values))
    return named[0], parts


def _value(template: str, values: tuple[Any, ...]) -> object:
    if template in _NATIVE and isinstance(values[0], int | float | None):
        return values[0]
    return template % values


def _words(record: logging.LogRecord) -> str:
    """Return a line of ours in which a value is one word, or quoted; "" for lines of others."""
    event, parts = _parts(record)
    words = [event]
    for name, template, values in parts:
        value = template % values
        is_quoted = template == "%r"
        words.append(f"{name}={value if is_quoted or _WORD.fullmatch(value) else repr(value)}")
    return " ".join(words)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class TextLines(logging.Formatter):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).isoformat(" ", "milliseconds")
        text = _words(record) or f"{LIBRARY} logger={record.name} {record.getMessage()}"
        left_out = getattr(record, "left_out", 0)
        text = _CONTROL.sub(_escaped, text)
        text = f"{at} {record.levelname:7} {text}" + (f" left_out={left_out}" if left_out else "")
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            text += "".join(f"\n{_SET_IN}{_CONTROL.sub(_escaped, line)}" for line in lines)
        return text


class JsonLines(logging.Formatter):
    """One object per line."""

    def __init__(self, component: str, node: str = "") -> None:
        """`node`: which one of a kind this is."""
        super().__init__()
        self._head = {"component": component, **({"node": node} if node else {})}

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = read(record)
        shown = {
            "ts": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            **self._head,
            "event": line.event,
            **line.fields,
        }
        if getattr(record, "left_out", 0):
            shown["left_out"] = record.left_out  # type: ignore[attr-defined]
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str, ensure_ascii=False)


class Repeats(logging.Filter):
    """Leaves out lines that repeat themselves; see the top of the file."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[object, ...], tuple[float, int]] = {}
        """Key -> when its window began, and how many came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        key: tuple[object, ...] = (record.name, record.msg)
        burst = _AT_WILL_BURST
        if getattr(record, "at_will", False):
            if record.name == SECURITY.name:
                fields = read(record).fields
                who = (str(fields.get(name)) for name in ("user", "peer", "from"))
                if not self._passes(record, (*key, *who), burst):
                    return False
                burst = _SECURITY_BURST
        else:
            if record.levelno < logging.WARNING:
                return True
            line = read(record)
            key = (*key, *(str(line.fields.get(name)) for name in IDS))
            burst = _BURST
        return self._passes(record, key, burst)

    def _passes(self, record: logging.LogRecord, key: tuple[object, ...], burst: int) -> bool:
        since_s, count = self._seen.pop(key, (record.created, 0))
        left_out = 0
        if record.created - since_s >= _WINDOW_S:
            left_out, since_s, count = max(0, count - burst), record.created, 0
        while len(self._seen) >= _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = (since_s, count + 1)
        record.left_out = left_out + getattr(record, "left_out", 0)
        return count < burst


def start(
    component: str,
    *,
    node: str = "",
    style: LogFormat = "text",
    level: LogLevel = "info",
    stream: TextIO | None = None,
) -> None:
    """Log to stderr, or to `stream`; a later call replaces an earlier one."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(component, node) if style == "json" else TextLines())
    handler.addFilter(Repeats())
    root = logging.getLogger()
    for former in list(root.handlers):
        if isinstance(former.formatter, TextLines | JsonLines):
            root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name, least in _FOREIGN.items():
        logging.getLogger(name).setLevel(least)


def asked_style(argv: list[str], environ_value: str | None) -> LogFormat:
    """Return the style to use before settings are read: what a wrong setting is told in."""
    words: Iterator[str] = iter(argv)
    asked = environ_value
    for word in words:
        name, _, value = word.partition("=")
        if name == "--log-format":
            asked = value or next(words, None)
    return "json" if asked == "json" else "text"
