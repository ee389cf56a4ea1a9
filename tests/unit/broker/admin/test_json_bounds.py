"""JSON is counted before it is parsed, whatever its strings hold, and encoded in slices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.admin.json_bounds import SLICE_ITEMS, encode, values_at_least
from client.wire.steps import finish

LIMIT = 100


def counted(value: Any) -> int:
    """The values in lists and objects."""
    if isinstance(value, dict):
        return sum(1 + counted(each) for each in value.values())
    if isinstance(value, list):
        return sum(1 + counted(each) for each in value)
    return 0


@pytest.mark.parametrize(
    "value",
    [
        [[]] * 500,
        [1] * 500,
        {str(at): {} for at in range(500)},
        ["\\"] * 500,
        ['"'] * 500,
        ['\\"'] * 500,
        [[[["a,b"]]]] * 200,
        ["", "x\\\\"] * 250,
    ],
    ids=lambda value: json.dumps(value)[:20],
)
def test_many_values_are_found(value: Any) -> None:
    body = json.dumps(value).encode()
    found = values_at_least(body, LIMIT)
    assert found > LIMIT
    assert counted(value) / 2 <= found <= 2 * counted(value) + 2


@pytest.mark.parametrize("text", [",[{" * 1_000, '"[' * 1_000, "\\,[" * 1_000, '\\\\",' * 1_000])
def test_what_is_in_strings_does_not_count(text: str) -> None:
    value = {"records": [{"value": text, "key": text}]}
    assert values_at_least(json.dumps(value).encode(), LIMIT) <= LIMIT


def test_small_documents_pass() -> None:
    assert values_at_least(b"{}", LIMIT) == 1
    assert values_at_least(b"not json", LIMIT) == 0


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"name": f"é{n}", "values": [n, None, 1.5], "is_last": n == count - 1} for n in range(count)
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        None,
        {"items": [], "next": None},
        {"items": rows(SLICE_ITEMS), "next": 'a"b'},
        {"members": rows(3), "offsets": rows(5 * SLICE_ITEMS + 1), "lag": 7},
        rows(2 * SLICE_ITEMS),
    ],
)  # fmt: skip
def test_it_is_what_the_library_makes(body: Any) -> None:
    assert finish(encode(body)) == json.dumps(body).encode()


def test_a_long_list_takes_many_steps() -> None:
    assert len(list(encode({"items": rows(10 * SLICE_ITEMS), "next": None}))) == 9
    assert len(list(encode({"a": rows(SLICE_ITEMS), "b": rows(SLICE_ITEMS)}))) == 0
