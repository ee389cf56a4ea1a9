"""JSON documents are counted before they are parsed, whatever their strings hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.admin.json_size import values_at_least

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
