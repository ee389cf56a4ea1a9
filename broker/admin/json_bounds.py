"""Keeps JSON from stopping the process: counts values before parsing, encodes answers in slices.

Python's library takes a large document in one go, with the whole process waiting. Sixteen megabytes
may hold eight million empty lists; counting the marks between values takes a hundredth of parsing
them. Text may hold such marks too; only where that could matter are strings told from the rest. And
an answer with a hundred thousand rows is a second of encoding: lists that may be long are the
values of an answer's object, so the items of these are encoded a slice at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from client.wire.steps import Steps

SLICE_ITEMS: Final = 200
"""Of the longer ones, about two milliseconds."""
_MARKS = (b",", b"[", b"{")


def values_at_least(body: bytes, limit: int) -> int:
    """Return a number of values that a document has, to the factor of two; if it is at most `limit`
    it may be larger than what is there.

    Each value follows a comma, an opening bracket or its name.
    """
    count = _marks(body)
    if count <= limit:
        return count
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = plain.count(b'"') // 2
    if strings > 2 * limit:
        return strings
    return sum(map(_marks, plain.split(b'"')[::2]))


def _marks(data: bytes) -> int:
    return sum(map(data.count, _MARKS))


def encode(body: Any) -> Steps[bytes]:
    """Return what `json.dumps` makes of a JSON value."""
    if not isinstance(body, Mapping):
        return (yield from _value(body))
    members = []
    for name, value in body.items():
        members.append(json.dumps(name).encode() + b": " + (yield from _value(value)))
    return b"{" + b", ".join(members) + b"}"


def _value(value: Any) -> Steps[bytes]:
    if not isinstance(value, list) or len(value) <= SLICE_ITEMS:
        return json.dumps(value).encode()
    slices = []
    for first in range(0, len(value), SLICE_ITEMS):
        if first:
            yield
        part: Sequence[Any] = value[first : first + SLICE_ITEMS]
        slices.append(json.dumps(part).encode()[1:-1])
    return b"[" + b", ".join(slices) + b"]"
