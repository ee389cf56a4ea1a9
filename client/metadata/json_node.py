"""Reading a JSON object out of a metadata node, whose bytes anybody may have written.

Covers what is refused whatever the node is about: what is no JSON object, nesting without end,
numbers that are not whole or do not fit 64 bits. Every function raises ValueError; callers say in
their own words which node is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

INT64_MAX: Final = (1 << 63) - 1


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


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a whole number")


_DECODER: Final = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)
"""`json.loads` would make one for each node that is read, which takes longer than a small node."""
