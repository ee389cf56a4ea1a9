"""What requests in order are made of, and the things that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.integration.differential.known import Known
from tests.integration.differential.steps import UNKNOWN_ID

SETTINGS_TOPICS = 8
"""Topics `c-0`, `c-1`...: of them settings and places are changed."""
WRITTEN = "w"
KEYED = "keyed"
"""A compacted topic that is written to."""
WRITTEN_PARTITIONS = 4


class Base(NamedTuple):
    """A request that is in order; `fields` may hold more than its version has."""

    name: str
    fields: Callable[[int, int], Mapping[str, Any]]
    """Of the request's number and version."""
    prepare: tuple[str, ...] = ()
    """What is asked before it (`campaign.py`)."""
    versions: range | None = None


def same(name: str, **fields: Any) -> Base:
    return Base(name, lambda _n, _v: fields)


def topic_id(name: str) -> Known:
    return Known(f"id of {name}", UNKNOWN_ID)


def member(number: int) -> Known:
    return Known(f"member {number}", "")


def producer(number: int) -> dict[str, Known]:
    return {
        "producer_id": Known(f"producer {number}", -1),
        "producer_epoch": Known(f"epoch {number}", -1),
    }


def named(version: int, ids_from: int, name: str, field: str = "name") -> dict[str, Any]:
    return {"topic_id": topic_id(name)} if version >= ids_from else {field: name}
