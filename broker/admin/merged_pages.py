"""Pages of lists whose items are at all brokers, each at one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from broker.admin.context import AdminContext
from broker.admin.pages import page
from broker.admin.request import AdminRequest, Answer

Here = Callable[[AdminContext, AdminRequest], Awaitable[Answer]]

SILENT: Final = "silent"
"""Where an answer names the brokers that were asked in vain."""


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
