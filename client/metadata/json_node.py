"""Reading a JSON object out of a metadata node, whose bytes anybody may have written.

Covers what is refused whatever the node is about: what is no JSON object, nesting without end,
numbers that JSON does not have. Whether a number is whole and fits is asked of each field that is
known (`whole`); what a newer release writes into others is its own business, and whoever changes a
node writes it back unchanged (`unknown_fields`). Every function raises ValueError; callers say in
their own words which node is damaged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from typing import Any, Final, NoReturn

INT64_MAX: Final = (1 << 63) - 1
NO_FIELDS: Final[Mapping[str, Any]] = {}
"""Nearly all nodes have none that are not known. No proxy: tasks of Spark are pickled."""


def read_object(data: bytes) -> dict[str, Any]:
    """Parse a node's bytes. Raises ValueError."""
    try:
        value = _DECODER.decode(data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def whole(fields: Mapping[str, Any], name: str, least: int = 0, most: int = INT64_MAX) -> int:
    """Return a number within its range. Raises ValueError, KeyError if there is none."""
    value = fields[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is not between {least} and {most}")
    return value


def unknown_fields(fields: Mapping[str, Any], known: Set[str]) -> Mapping[str, Any]:
    """Return the fields that only another release knows: `encode` has to write them back."""
    if fields.keys() <= known:
        return NO_FIELDS
    return {name: fields[name] for name in fields if name not in known}


def carried(before: bytes | None, known: Set[str]) -> Mapping[str, Any]:
    """Return the same of the bytes that a node had; nothing if there was no node."""
    return NO_FIELDS if before is None else unknown_fields(read_object(before), known)


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no number of JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_number, parse_constant=_refuse)
"""`json.loads` would make one for each node that is read, which takes longer than a small node."""
