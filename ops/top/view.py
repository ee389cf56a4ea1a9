"""How a snapshot looks in a terminal.

Covers `quire top`'s picture: what stands where, in which order, and how much fits. Every state is
a word; colours only repeat it, so nothing is lost without them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ops.amounts import size
from ops.top.snapshot import READY, GroupRow, Snapshot, TopicRow

R = TypeVar("R")
_ROWS_MIN: Final = 1
"""Rows that each table gets, however low the terminal is."""
_LARGE: Final = 1_000_000
_WORST_LAG_S: Final = 300.0


class Order(enum.Enum):
    """What topics and groups are sorted by; `next` is the following one."""

    BUSY = "busiest first"
    SIZE = "largest first"
    NAME = "by name"

    @property
    def next(self) -> Order:
        """Return the one that the key `s` leads to."""
        orders = list(Order)
        return orders[(orders.index(self) + 1) % len(orders)]


def ordered_topics(rows: Sequence[TopicRow], order: Order) -> list[TopicRow]:
    """Return topics in an order; equal ones by name."""
    keys: dict[Order, Callable[[TopicRow], tuple[float, str]]] = {
        Order.BUSY: lambda row: (-(row.produced_records or 0.0), row.topic),
        Order.SIZE: lambda row: (-row.bytes, row.topic),
        Order.NAME: lambda row: (0.0, row.topic),
    }
    return sorted(rows, key=keys[order])


def ordered_groups(rows: Sequence[GroupRow], order: Order) -> list[GroupRow]:
    """Return groups in an order: busiest means furthest behind in time."""
    keys: dict[Order, Callable[[GroupRow], tuple[float, str]]] = {
        Order.BUSY: lambda row: (-(row.lag_seconds or 0.0), row.group),
        Order.SIZE: lambda row: (-(row.lag_records or 0), row.group),
        Order.NAME: lambda row: (0.0, row.group),
    }
    return sorted(rows, key=keys[order])


def headline(snapshot: Snapshot) -> Text:
    """Return the state of the cluster in one line."""
    ready = sum(row.state == READY for row in snapshot.brokers)
    states = [row.state for row in snapshot.bookies]
    parts = [
        _judged(f"{ready}/{len(snapshot.brokers)} brokers ready", ready == len(snapshot.brokers)),
        _judged(
            f"{snapshot.partitions_led}/{snapshot.partitions} partitions led",
            snapshot.partitions_led >= snapshot.partitions,
        ),
        _judged(
            f"{states.count('writable')}/{len(states)} bookies writable",
            states.count("writable") == len(states),
        ),
        _judged(
            f"{snapshot.under_replicated}{'+' if snapshot.under_replicated_more else ''}"
            " ledgers lack copies",
            snapshot.under_replicated == 0,
        ),
    ]
    line = Text(" · ").join([*parts, Text(f"cluster {snapshot.cluster_id}", "dim")])
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def picture(
    snapshot: Snapshot, *, order: Order = Order.BUSY, height: int | None = None, foot: str = ""
) -> RenderableType:
    """Return everything, cut to `height` lines if one is given."""
    topics, groups = ordered_topics(snapshot.topics, order), ordered_groups(snapshot.groups, order)
    rooms = _rooms([len(snapshot.brokers), len(topics), len(groups), len(snapshot.bookies)], height)
    parts: list[RenderableType] = [
        headline(snapshot),
        _brokers(snapshot, rooms[0]),
        _topics(topics, rooms[1]),
        _groups(groups, rooms[2]),
        _bookies(snapshot, rooms[3]),
    ]
    if foot:
        parts.append(Text(foot, "dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _rooms(counts: Sequence[int], height: int | None) -> list[int]:
    """Return how many rows each table may show: the short ones all, the others equal shares."""
    if height is None:
        return list(counts)
    # Headline and foot; per table a blank line, its titles, and what says how many are left out.
    left = max(height - 2 - 3 * len(counts), _ROWS_MIN * len(counts))
    rooms = [0] * len(counts)
    waiting = sorted(range(len(counts)), key=lambda at: counts[at])
    while waiting:
        at = waiting.pop(0)
        rooms[at] = max(_ROWS_MIN, min(counts[at], left // (len(waiting) + 1)))
        left -= min(rooms[at], counts[at])
    return rooms


def _table(*columns: str) -> Table:
    """Return a table; columns that begin with `>` hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in columns:
        is_right = title.startswith(">")
        table.add_column(
            title.removeprefix(">"), justify="right" if is_right else "left", no_wrap=True,
            overflow="ellipsis",
        )  # fmt: skip
    return table


def _cut(rows: Sequence[R], room: int, what: str) -> tuple[Sequence[R], Text]:
    """Return the rows that fit, and what says how many do not."""
    more = len(rows) - room
    return rows[:room], Text(f"  … {more} more {what}" if more > 0 else "", "dim")


def _framed(table: Table, rest: Text) -> Group:
    return Group(Text(""), table, rest) if rest else Group(Text(""), table)


def _brokers(snapshot: Snapshot, room: int) -> RenderableType:
    table = _table("BROKER", "STATE", ">LEADS", ">GROUPS", ">CONNECTIONS", ">REQUESTS/S",
                   ">RECORDS IN/S", ">BYTES IN/S", ">BYTES OUT/S")  # fmt: skip
    rows, rest = _cut(snapshot.brokers, room, "brokers")
    for row in rows:
        state = row.state if row.why is None else f"{row.state}: {row.why}"
        table.add_row(
            str(row.broker_id), _judged(state, row.state == READY), _number(row.partitions_led),
            _number(row.groups), _number(row.connections), _number(row.requests),
            _number(row.produced_records), _bytes(row.produced_bytes), _bytes(row.fetched_bytes),
        )  # fmt: skip
    return _framed(table, rest)


def _topics(topics: Sequence[TopicRow], room: int) -> RenderableType:
    table = _table("TOPIC", ">PARTITIONS", ">LED", ">RECORDS", ">SIZE", ">RECORDS IN/S")
    rows, rest = _cut(topics, room, "topics")
    for row in rows:
        table.add_row(
            row.topic, _number(row.partitions),
            _judged(_number(row.partitions_led), row.partitions_led >= row.partitions),
            _number(row.records), _bytes(row.bytes), _number(row.produced_records),
        )  # fmt: skip
    return _framed(table, rest)


def _groups(groups: Sequence[GroupRow], room: int) -> RenderableType:
    table = _table("GROUP", "STATE", ">MEMBERS", ">LAG", ">BEHIND BY")
    rows, rest = _cut(groups, room, "groups")
    for row in rows:
        table.add_row(
            row.group, row.state, _number(row.members), _number(row.lag_records),
            _judged(_span(row.lag_seconds), (row.lag_seconds or 0.0) < _WORST_LAG_S),
        )  # fmt: skip
    return _framed(table, rest)


def _bookies(snapshot: Snapshot, room: int) -> RenderableType:
    table = _table("BOOKIE", "STATE", "RACK", ">DISK USED", ">DISK FREE")
    rows, rest = _cut(snapshot.bookies, room, "bookies")
    for row in rows:
        free, total = row.disk_free_bytes, row.disk_total_bytes
        used = f"{100 * (1 - free / total):.0f} %" if free is not None and total else "-"
        table.add_row(
            row.bookie_id, _judged(row.state.replace("_", "-"), row.state == "writable"),
            row.rack or "-", used, _bytes(free),
        )  # fmt: skip
    return _framed(table, rest)


def _judged(text: str, is_good: bool) -> Text:
    return Text(text, "green" if is_good else "bold red")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= _LARGE:
        return f"{value / _LARGE:,.1f} M"
    return f"{value:,.1f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    return "-" if value is None else size(round(value)).replace(" bytes", " B").replace("byte", "B")


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, length_s in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"
