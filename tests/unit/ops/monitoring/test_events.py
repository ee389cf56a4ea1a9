"""The table of log events says what the code logs."""

from __future__ import annotations

import logging

import pytest

from client import logs
from ops.monitoring import events


def test_every_call_names_an_event_and_its_fields() -> None:
    assert events.misshapen() == []


def test_the_table_is_true() -> None:
    """`python -m ops.monitoring.events` prints the rows that are missing or wrong."""
    assert events.documented() == events.found()
    assert "TELL" not in events.DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("event", events.found().values(), ids=lambda event: event.name)
def test_no_field_hides_what_every_line_has(event: events.Event) -> None:
    assert not {"ts", "level", "component", "event", "exception", "left_out"} & set(event.fields)


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
