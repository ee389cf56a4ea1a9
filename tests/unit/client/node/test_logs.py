"""How log lines look: for people, as JSON, and when they repeat themselves."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from client.node import logs
from client.node.logs import JsonLines, LogFormat, Repeats, TextLines

NAME = "bookie.storage.storage"


def record(
    text: str, *args: object, level: int = logging.INFO, at_s: float = 1_700_000_000.25,
    name: str = NAME, error: BaseException | None = None,
) -> logging.LogRecord:  # fmt: skip
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, level, "storage.py", 1, text, args, info)
    made.created = at_s
    return made


def as_json(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonLines("bookie", "b1").format(made)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_json_has_the_event_and_every_field_as_it_was_given() -> None:
    made = record("ledger.fenced ledger=%d bookie=%s seconds=%.1f why=%r", 12, "b3", 0.25, "x y")
    assert as_json(made) == {
        "ts": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "component": "bookie",
        "node": "b1",
        "event": "ledger.fenced",
        "ledger": 12,
        "bookie": "b3",
        "seconds": 0.25,
        "why": "'x y'",
    }


@pytest.mark.parametrize(
    ("text", "args", "fields"),
    [
        ("peer.gone address=%s:%d", ("h", 9), {"address": "h:9"}),
        ("metadata.expired session=%#x", (255,), {"session": "0xff"}),
        ("bookie.writable", (), {}),
        ("bookie.forced read_only=%s", (True,), {"read_only": True}),
        ("a.b rack=%s", (None,), {"rack": None}),
        ("a.b text=%s more=%d", ("it says key=%d", 3), {"text": "it says key=%d", "more": 3}),
    ],
)
def test_fields_of_every_shape(text: str, args: tuple[object, ...], fields: object) -> None:
    line = logs.read(record(text, *args))
    assert line.fields == fields
    assert line.event == text.split()[0]


def test_an_exception_is_one_field() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        found = as_json(record("request.failed api=%d", 3, level=logging.ERROR, error=error))
    assert found["api"] == 3
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("ValueError: two\nlines")


def test_lines_of_libraries_keep_their_words() -> None:
    found = as_json(record("Unclosed %s", "session", name="aiohttp.client"))
    assert (found["event"], found["logger"]) == ("library.line", "aiohttp.client")
    assert found["message"] == "Unclosed session"


def test_text_is_for_people() -> None:
    line = TextLines().format(record("ledger.fenced ledger=%d", 12, level=logging.WARNING))
    assert line.endswith(" WARNING ledger.fenced ledger=12")
    foreign = TextLines().format(record("Unclosed session", name="aiohttp.client"))
    assert foreign.endswith(" INFO    library.line logger=aiohttp.client Unclosed session")


def test_what_a_client_says_cannot_look_like_fields_of_ours() -> None:
    said = "1.2.3.4 operation=x user='bob'"
    line = TextLines().format(record("admin.done operation=%s from=%s", "put", said))
    assert line.endswith(f"admin.done operation=put from={said!r}")
    assert TextLines().format(record("a.b name=%s", "'x' y=1")).endswith(repr("'x' y=1"))
    assert TextLines().format(record("a.b name=%r at=%d", "x y", 3)).endswith("name='x y' at=3")


def test_an_exceptions_words_cannot_look_like_another_line() -> None:
    try:
        raise ValueError("x\n2026-11-20 18:02:11.042 INFO    admin.done user='bob'\x1b[2J")
    except ValueError as error:
        shown = TextLines().format(record("request.failed api=%d", 3, error=error))
    first, *rest = shown.split("\n")
    assert first.endswith("request.failed api=3")
    assert len(rest) > 2 and all(line.startswith("    ") for line in rest)
    assert "\x1b" not in shown


def test_a_warning_that_repeats_itself_is_left_out_and_counted() -> None:
    repeats = Repeats()

    def passes(at_s: float, ledger: int = 1, level: int = logging.WARNING) -> bool:
        return repeats.filter(
            record("a.b ledger=%d error=%r", ledger, at_s, level=level, at_s=at_s)
        )

    assert [passes(100.0 + n / 10) for n in range(8)] == [True] * 5 + [False] * 3
    assert passes(101.0, ledger=2), "another ledger is another matter"
    assert all(passes(101.0, level=logging.INFO) for _ in range(20)), "only warnings are left out"
    late = record("a.b ledger=%d error=%r", 1, "x", level=logging.WARNING, at_s=110.0)
    assert repeats.filter(late)
    assert as_json(late)["left_out"] == 3
    assert TextLines().format(late).endswith("left_out=3")
    assert passes(110.1)


def test_what_a_client_causes_at_will_is_left_out_whatever_it_says_and_counted() -> None:
    repeats = Repeats()

    def made(word: str, at_s: float) -> logging.LogRecord:
        line = record("topic.not_created topic=%r error=%s", word, "no", at_s=at_s)
        line.__dict__.update(logs.AT_WILL)
        return line

    passed = [repeats.filter(made(f"topic {n}", 100.0 + n / 2000)) for n in range(2000)]
    assert passed == [True] * 50 + [False] * 1950
    assert repeats.filter(record("topic.created topic=%s", "x")), "no other line suffers"
    late = made("topic", 110.0)
    assert repeats.filter(late)
    assert as_json(late)["left_out"] == 1950


def test_what_is_remembered_of_repeats_is_bounded() -> None:
    repeats = Repeats()
    for ledger in range(5000):
        assert repeats.filter(record("a.b ledger=%d", ledger, level=logging.WARNING))
    assert len(repeats._seen) <= 1000


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers[:] = [logging.NullHandler()]
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_start_replaces_what_an_earlier_one_did_and_nothing_else(root: logging.Logger) -> None:
    others = len(root.handlers)
    first, second = io.StringIO(), io.StringIO()
    logs.start("broker", stream=first)
    logs.start("broker", node="1", style="json", level="warning", stream=second)
    assert len(root.handlers) == others + 1
    log = logging.getLogger("broker.app")
    log.info("broker.serving broker=%d", 1)
    log.warning("loop.late seconds=%.1f", 2.0)
    assert first.getvalue() == ""
    (line,) = second.getvalue().splitlines()
    assert json.loads(line)["seconds"] == 2.0


@pytest.mark.parametrize(
    ("argv", "variable", "style"),
    [
        ([], None, "text"),
        ([], "json", "json"),
        (["--log-format=json"], None, "json"),
        (["--port", "1", "--log-format", "json"], "text", "json"),
        (["--log-format"], "json", "text"),
        (["--log-format=xml"], None, "text"),
    ],
)
def test_the_style_is_known_before_settings_are(
    argv: list[str], variable: str | None, style: LogFormat
) -> None:
    assert logs.asked_style(argv, variable) == style


def test_lines_go_to_stderr_by_default(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.start("broker")
    logging.getLogger("broker").error("broker.cannot_start reason=%s", "no port")
    assert "broker.cannot_start reason='no port'" in capsys.readouterr().err
    assert sys.stderr is not None


def of_security(user: str, at_s: float) -> logging.LogRecord:
    line = record("request.denied user=%r peer=%s", user, "10.0.0.1", at_s=at_s)
    line.name = logs.SECURITY.name
    line.__dict__.update(logs.AT_WILL)
    return line


def test_who_causes_many_lines_of_security_drowns_nobody_elses() -> None:
    repeats = Repeats()
    passed = [repeats.filter(of_security("mallory", 100.0)) for _ in range(200)]
    assert passed == [True] * 50 + [False] * 150
    assert repeats.filter(of_security("anna", 100.0))
    many = sum(repeats.filter(of_security(f"u{number}", 101.0)) for number in range(3_000))
    assert many < 1_000, "of all users together there are so many and no more"


def test_no_level_switches_lines_of_security_off(root: logging.Logger) -> None:
    stream = io.StringIO()
    logs.start("broker", style="json", level="error", stream=stream)
    root.setLevel(logging.CRITICAL)
    logs.SECURITY.info("request.changed user=%r", "anna")
    assert json.loads(stream.getvalue())["event"] == "request.changed"
