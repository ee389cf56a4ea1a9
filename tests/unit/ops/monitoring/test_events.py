"""The table of log events says what the code logs."""

from __future__ import annotations

import logging

import pytest

from client.node import logs
from ops.monitoring import events


@pytest.fixture(scope="module")
def found() -> dict[str, events.Event]:
    """What the code logs, looked for once."""
    return events.found()


def test_every_call_names_an_event_and_its_fields() -> None:
    assert events.misshapen() == []


def test_the_table_is_true(found: dict[str, events.Event]) -> None:
    """`python -m ops.monitoring.events` prints the rows that are missing or wrong."""
    assert events.documented() == found
    assert "TELL" not in events.DOCUMENT.read_text(encoding="utf-8")


def test_no_field_hides_what_every_line_has(found: dict[str, events.Event]) -> None:
    every_line = {"ts", "level", "component", "event", "exception", "left_out"}
    hidden = {name: every_line & set(event.fields) for name, event in found.items()}
    assert len(hidden) > 100
    assert {name: fields for name, fields in hidden.items() if fields} == {}


def test_what_is_found_is_what_the_formatter_reads() -> None:
    """The two readers of a format string agree, for every call there is."""
    for call in events.calls():
        if call.text.startswith("%s "):
            continue
        places = logs._PLACE.findall(call.text)
        args = tuple(0 if place[-1] in "dfgx" else "v" for place in places)
        level = logging.getLevelName(call.level.upper())
        line = logs.read(logging.LogRecord("n", level, "f", 1, call.text, args, None))
        assert line.event == call.text.split()[0], call.place
        assert tuple(line.fields) == events.fields_of(call.text), call.place
