"""Splits lists into pages, by `limit` and `after`.

Rows are found and shown in steps of the event loop: a list may be long, and so may its rows.

A page starts after the last key of the previous one, not at a count, so items that come or go
meanwhile shift nothing. Items that are at all brokers, each at one of them, are merged into one
list (`merged_page`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from broker.admin.context import AdminContext
from broker.admin.problems import wrong_field
from broker.admin.request import AdminRequest, Answer
from broker.admin.schema import NAME_CHARS_MAX, Schema, text, whole
from client.node.turns import Turns

T = TypeVar("T")

LIMIT_MAX: Final = 1_000
_ROWS_PER_TURN: Final = 100
"""Of the costlier ones, a few milliseconds."""
QUERY: Final[Mapping[str, Schema]] = {
    "limit": whole("Most items of one page.", 1, LIMIT_MAX, default=100),
    "after": text("`next` of the previous page.", minLength=1, maxLength=NAME_CHARS_MAX),
}

Here = Callable[[AdminContext, AdminRequest], Awaitable[Answer]]

SILENT: Final = "silent"
"""Where an answer names the brokers that were asked in vain."""


async def page(
    turns: Turns,
    items: Iterable[T],
    query: Mapping[str, Any],
    key: Callable[[T], str],
    show: Callable[[T], Any],
) -> Answer:
    """Return the page that `query` asks for, of items in ascending order of their keys."""
    after, limit = query.get("after"), query["limit"]
    pace = turns.pace()
    found: list[T] = []
    following = None
    for item in items:
        await pace.item()
        if after is None or key(item) > after:
            if len(found) == limit:
                following = key(found[-1])
                break
            found.append(item)
    return Answer({"items": await _shown(turns, found, show), "next": following})


async def numbers(
    turns: Turns, count: int, query: Mapping[str, Any], show: Callable[[int], Any]
) -> Answer:
    """Return a page of things that are numbered from 0."""
    after, limit = number_after(query), query["limit"]
    last = min(count, after + 1 + limit)
    shown = await _shown(turns, range(after + 1, last), show)
    return Answer({"items": shown, "next": str(last - 1) if last < count else None})


async def _shown(turns: Turns, items: Iterable[T], show: Callable[[T], Any]) -> list[Any]:
    rows: list[Any] = []
    for item in items:
        if len(rows) % _ROWS_PER_TURN == _ROWS_PER_TURN - 1:
            await turns.next()
        rows.append(show(item))
    return rows


def number_after(query: Mapping[str, Any]) -> int:
    """Return the number that a page of numbered things starts after. Raises Problem."""
    after = query.get("after", "-1")
    if after == "-1":
        return -1
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise wrong_field("after", "must be the `next` of a page of this list")
    return int(after)


async def merged_page(
    context: AdminContext, request: AdminRequest, path: str, here: Here, key: str
) -> Answer:
    """Ask `/brokers/{id}/{path}` of all others and `here` of this one; `key` orders the items."""
    query = {name: str(value) for name, value in request.query.items()}
    others = await context.peer_client.ask_all(lambda one: f"/brokers/{one.id}/{path}", query)
    pages = [(await here(context, request)).body, *others.answers.values()]
    rows = {row[key]: row for answer in pages for row in answer["items"]}
    merged = await page(
        context.broker.services.turns, [rows[name] for name in sorted(rows)], request.query,
        lambda row: str(row[key]), lambda row: row,
    )  # fmt: skip
    if merged.body["next"] is None and any(answer["next"] for answer in pages):
        merged.body["next"] = merged.body["items"][-1][key]
    merged.body[SILENT] = list(others.silent)
    return merged
