"""Splits lists into pages, by `limit` and `after`.

A page starts after the last key of the previous one, not at a count, so items that come or go
meanwhile shift nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from broker.admin.problems import wrong_field
from broker.admin.request import Answer
from broker.admin.schema import NAME_CHARS_MAX, Schema, text, whole

T = TypeVar("T")

LIMIT_MAX: Final = 1_000
QUERY: Final[Mapping[str, Schema]] = {
    "limit": whole("Most items of one page.", 1, LIMIT_MAX, default=100),
    "after": text("`next` of the page before.", minLength=1, maxLength=NAME_CHARS_MAX),
}


def page(
    items: Iterable[T],
    query: Mapping[str, Any],
    key: Callable[[T], str],
    show: Callable[[T], Any],
) -> Answer:
    """Return the page that `query` asks for, of items in ascending order of their keys."""
    after, limit = query.get("after"), query["limit"]
    found: list[T] = []
    for item in items:
        if after is None or key(item) > after:
            if len(found) == limit:
                return Answer({"items": [show(one) for one in found], "next": key(found[-1])})
            found.append(item)
    return Answer({"items": [show(one) for one in found], "next": None})


def numbers(count: int, query: Mapping[str, Any], show: Callable[[int], Any]) -> Answer:
    """Return a page of things that are numbered from 0."""
    after, limit = number_after(query), query["limit"]
    last = min(count, after + 1 + limit)
    shown = [show(index) for index in range(after + 1, last)]
    return Answer({"items": shown, "next": str(last - 1) if last < count else None})


def number_after(query: Mapping[str, Any]) -> int:
    """Return the number that a page of numbered things starts after. Raises Problem."""
    after = query.get("after", "-1")
    if after == "-1":
        return -1
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise wrong_field("after", "must be the `next` of a page of this list")
    return int(after)
