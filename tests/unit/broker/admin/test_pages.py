"""Pages are found and shown in steps of the event loop, and are what one go would make."""

from __future__ import annotations

from typing import Any

from broker.admin.pages import numbers, page
from client.node.turns import Turns


async def names_of(turns: Turns, count: int, **query: Any) -> tuple[list[str], str | None]:
    names = [f"{n:06d}" for n in range(count)]
    answer = await page(turns, names, {"limit": 1_000, **query}, str, str)
    return answer.body["items"], answer.body["next"]


async def test_a_page_begins_behind_the_one_before() -> None:
    turns = Turns()
    assert await names_of(turns, 5, limit=2) == (["000000", "000001"], "000001")
    assert await names_of(turns, 5, limit=3, after="000001") == (
        ["000002", "000003", "000004"],
        None,
    )
    assert await names_of(turns, 5, after="000004") == ([], None)


async def test_a_list_is_gone_through_in_many_turns() -> None:
    turns = Turns()
    await names_of(turns, 50_000, after="049998")
    assert turns.taken >= 99


async def test_rows_are_shown_in_many_turns() -> None:
    turns = Turns()
    await numbers(turns, 5_000, {"limit": 1_000}, str)
    assert turns.taken >= 9
    before = turns.taken
    answer = await numbers(turns, 5_000, {"limit": 50, "after": "99"}, str)
    assert answer.body == {"items": [str(n) for n in range(100, 150)], "next": "149"}
    assert turns.taken == before, "a short page is shown at once"
