"""What a newer release has written into a list, a segment or a page stays there, whatever we do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.compacted import Round, Swap, completed, released, swapped
from client.log.segment import Segment, SegmentFacts
from client.log.segment_pages import Page, decode_page, ref_of
from client.log.segments import SegmentList, decode_segments, paged, unfolded

FUTURE: dict[str, Any] = {"future": {"since": 9, "why": ["so"]}}
LAST = LedgerId(6)


def segment(ledger: int, end: int | None = None) -> Segment:
    base = 10 * ledger
    facts = None if end is None else SegmentFacts(Offset(end - 1), 100, 5)
    return Segment(LedgerId(ledger), Offset(base), LeaderEpoch(0), 1, facts)


def newer() -> SegmentList:
    """Ledgers 0 to 5, sealed, and 6, as a newer release may have written them."""
    sealed = tuple(segment(number, 10 * number + 10) for number in range(LAST))
    plain = SegmentList(LeaderEpoch(0), Offset(0), (*sealed, segment(LAST))).check()
    value = json.loads(completed(plain, Round(Offset(10), -1), 5).encode())
    value |= FUTURE
    value["compaction"] |= FUTURE
    for item in value["segments"]:
        item["future"] = {"of": item["ledger"]}
    return decode_segments(json.dumps(value).encode())


def written(listed: SegmentList) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(listed.encode())
    assert decode_segments(listed.encode()) == listed
    return value


def ledgers_with_theirs(items: list[dict[str, Any]]) -> list[int]:
    """Return the ledgers whose segments have what the newer release knows of them."""
    return [item["ledger"] for item in items if item.get("future") == {"of": item["ledger"]}]


CHANGES: dict[str, Callable[[SegmentList], SegmentList]] = {
    "opened": lambda listed: listed.opened(
        LedgerId(7), base_offset=Offset(65), created_ms=1,
        recovered={LAST: (Offset(60), SegmentFacts(Offset(64), 9, 9))},
    ),
    "rolled": lambda listed: listed.rolled(LedgerId(7), 1),
    "sealed": lambda listed: (
        listed.rolled(LedgerId(7), 1).sealed(SegmentFacts(Offset(64), 9, 9))
    ),
    "condemned": lambda listed: listed.condemned(),
    "completed": lambda listed: completed(listed, Round(Offset(20), -1), 6),
    "released": lambda listed: released(listed, [LedgerId(3)]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_each_change_carries_it_along(change: Callable[[SegmentList], SegmentList]) -> None:
    value = written(change(newer()))
    assert value["future"] == value["compaction"]["future"] == FUTURE["future"]
    assert ledgers_with_theirs(value["segments"]) == [*range(LAST + 1)]


def test_what_is_trimmed_or_replaced_takes_its_own_with_it() -> None:
    value = written(newer().trimmed(2, Offset(20)))
    assert value["future"] == FUTURE["future"]
    assert ledgers_with_theirs(value["segments"]) == [2, 3, 4, 5, 6]
    new = segment(2, 40)._replace(ledger_id=LedgerId(900), cleaned=True)
    found = swapped(newer(), Swap((LedgerId(2), LedgerId(3)), (new,)), (), 7)
    assert found is not None
    value = written(found.segments)
    assert value["future"] == value["compaction"]["future"] == FUTURE["future"]
    assert ledgers_with_theirs(value["segments"]) == [0, 1, 4, 5, 6]


def test_it_moves_into_pages_and_out_of_them() -> None:
    moved = paged(newer(), LAST, page_entries=3)
    (made,) = moved.pages
    value = written(moved.segments)
    assert value["future"] == value["compaction"]["future"] == FUTURE["future"]
    assert ledgers_with_theirs(json.loads(made.page.encode())["segments"]) == [0, 1, 2]
    assert ledgers_with_theirs(value["segments"]) == [3, 4, 5, 6]
    back = written(unfolded(moved.segments, made.page))
    assert ledgers_with_theirs(back["oldest"]) == [0, 1, 2]


def test_a_page_that_takes_the_place_of_another_has_what_was_known_of_it() -> None:
    moved = paged(newer(), LAST, page_entries=3)
    (made,) = moved.pages
    ref = moved.segments.pages[0]
    page = decode_page(json.dumps(json.loads(made.page.encode()) | FUTURE).encode(), ref)
    new = segment(1, 30)._replace(ledger_id=LedgerId(900), cleaned=True)
    found = swapped(moved.segments, Swap((LedgerId(1), LedgerId(2)), (new,)), [page], 7)
    assert found is not None
    (remade,) = found.pages
    value = json.loads(remade.page.encode())
    assert value["future"] == FUTURE["future"]
    assert ledgers_with_theirs(value["segments"]) == [0]
    above = Page(pages=(ref_of(made.name, made.page),), kept=FUTURE)
    assert json.loads(above.encode())["future"] == FUTURE["future"]
