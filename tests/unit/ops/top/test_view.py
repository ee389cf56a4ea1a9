"""The picture: what stands in it, in which order, and how it fits."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ops.top.snapshot import BookieRow, BrokerRow, GroupRow, Snapshot, TopicRow
from ops.top.view import Order, headline, ordered_groups, ordered_topics, picture


def broker(number: int, state: str = "ready", why: str | None = None) -> BrokerRow:
    known = None if state == "silent" else 3
    rate = None if state == "silent" else 1_234_567.0
    return BrokerRow(number, state, why, known, known, known, rate, rate, rate, rate)


def topic(name: str, size: int = 0, rate: float | None = None, led: int = 2) -> TopicRow:
    return TopicRow(name, 2, led, 10, size, 10, rate)


def snapshot(**parts: object) -> Snapshot:
    known: dict[str, object] = {
        "at_s": 1.0,
        "cluster_id": "abc",
        "answered_by": 1,
        "partitions": 4,
        "partitions_led": 4,
        "brokers": [broker(1)],
        "topics": [topic("orders", 2_500_000, 12.5)],
        "groups": [GroupRow("readers", "Stable", 2, 1500, 90.0)],
        "bookies": [BookieRow("b1", "writable", "east", 250, 1000)],
        "under_replicated": 0,
        "under_replicated_more": False,
    }
    return Snapshot(**{**known, **parts})  # type: ignore[arg-type]


def drawn(shown: Snapshot, width: int = 120, **how: object) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(picture(shown, **how))  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def row(lines: list[str], begin: str) -> list[str]:
    return next(line for line in lines if line.startswith(begin)).split()


def test_everything_is_there_and_needs_no_colours() -> None:
    lines = drawn(snapshot())
    assert lines[0].startswith("1/1 brokers ready · 4/4 partitions led · 1/1 bookies writable · 0")
    assert row(lines, "1 ") == ["1", "ready", "3", "3", "3", *["1.2", "M"] * 2, *["1.2", "MB"] * 2]
    assert row(lines, "orders") == ["orders", "2", "2", "10", "2.5", "MB", "12.5"]
    assert row(lines, "readers") == ["readers", "Stable", "2", "1,500", "90", "s"]
    assert row(lines, "b1") == ["b1", "writable", "east", "75", "%", "250", "B"]


def test_what_is_wrong_is_said_in_words() -> None:
    shown = snapshot(
        brokers=[broker(1), broker(2, "silent", "cannot connect"), broker(3, "not ready", "no")],
        bookies=[
            BookieRow("b1", "read_only", None, None, None),
            BookieRow("b2", "down", None, None, None),
        ],
        partitions_led=3,
        under_replicated=7,
        under_replicated_more=True,
    )  # fmt: skip
    lines = drawn(shown)
    assert "1/3 brokers ready · 3/4 partitions led · 0/2 bookies writable · 7+ ledgers" in lines[0]
    assert "silent: cannot connect" in " ".join(row(lines, "2 "))
    assert row(lines, "2 ")[-3:] == ["-", "-", "-"], "not known is not 0"
    assert row(lines, "b1") == ["b1", "read-only", "-", "-", "-"]
    spans = {span.style for span in headline(shown).spans}
    assert "bold red" in spans


def test_orders() -> None:
    topics = [topic("b", 9, 1.0), topic("a", 5, 7.0), topic("c", 5, None)]
    assert [one.topic for one in ordered_topics(topics, Order.BUSY)] == ["a", "b", "c"]
    assert [one.topic for one in ordered_topics(topics, Order.SIZE)] == ["b", "a", "c"]
    assert [one.topic for one in ordered_topics(topics, Order.NAME)] == ["a", "b", "c"]
    groups = [
        GroupRow("b", "Empty", 0, 900, 1.0),
        GroupRow("a", "Empty", 0, 5, 60.0),
        GroupRow("c", "Empty", 0, None, None),
    ]
    assert [one.group for one in ordered_groups(groups, Order.BUSY)] == ["a", "b", "c"]
    assert [one.group for one in ordered_groups(groups, Order.SIZE)] == ["b", "a", "c"]
    assert Order.BUSY.next.next.next is Order.BUSY


@pytest.mark.parametrize("height", [24, 30, 50])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_into_the_terminal_and_says_what_it_leaves_out(width: int, height: int) -> None:
    shown = snapshot(
        brokers=[broker(number) for number in range(2)],
        topics=[topic(f"t{number}") for number in range(100)],
        groups=[GroupRow(f"g{number}", "Stable", 1, 0, 0.0) for number in range(100)],
        bookies=[BookieRow(f"b{number}", "writable", None, 1, 2) for number in range(4)],
    )
    lines = drawn(shown, width, height=height, foot="q quit")
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert lines[-1].startswith("q quit")
    left_out = [line.split() for line in lines if "more" in line]
    assert [words[-1] for words in left_out if words[-1] in ("topics", "groups")] == [
        "topics", "groups",
    ]  # fmt: skip
    (rest,) = [int(words[1]) for words in left_out if words[-1] == "topics"]
    assert sum(line.startswith("t") for line in lines) + rest == 100


def test_spans_and_sizes_are_for_people() -> None:
    for seconds, text in ((None, "-"), (0.0, "0 s"), (119.0, "119 s"), (120.0, "2 min"),
                          (7200.0, "2 h"), (400_000.0, "5 d")):  # fmt: skip
        group = GroupRow("g", "Empty", 0, 1, seconds)
        assert " ".join(row(drawn(snapshot(groups=[group])), "g ")).endswith(text)
