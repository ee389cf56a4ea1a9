"""What the object store has of a partition: how far it goes, what is being copied, what must go.

Stands in the head of the segment list, so it changes with the segments, in one compare-and-set. An
object is listed as intended before a byte of it is sent, and as buried before it is deleted: so the
name of every object is in the list, or was, whatever happens to the broker that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from client.ids import LedgerId, Offset
from client.log.segment_object import ObjectName
from client.metadata.json_node import NO_FIELDS, unknown_fields, whole

_FIELDS: Final = frozenset(("stored_until", "local_from", "intent", "graves"))
_NUMBERS: Final = 4


class Marked(NamedTuple):
    """An object that the list names beside its segments, and since when."""

    name: ObjectName
    since_ms: int


class OffloadState(NamedTuple):
    """The offloading of one partition."""

    stored_until: Offset = Offset(0)
    """Every segment that ends at or below it is in the object store, unless it was trimmed."""
    local_from: Offset = Offset(0)
    """No ledger is left of what is below it."""
    intent: Marked | None = None
    """The object that is being made (INTENT)."""
    graves: tuple[Marked, ...] = ()
    """Objects that nobody needs, which may be there."""
    used: bool = False
    """Whether an object was ever intended."""
    kept: Mapping[str, Any] = NO_FIELDS
    """What only another release knows of it."""

    def buried(self, names: list[ObjectName], now_ms: int) -> OffloadState:
        """Return the state with objects that must go."""
        return self._replace(graves=(*self.graves, *(Marked(name, now_ms) for name in names)))


NEVER_OFFLOADED: Final = OffloadState()


def offload_to_json(state: OffloadState) -> dict[str, object]:
    """Return the object that stands for it in the head."""
    return {
        **state.kept,
        "stored_until": state.stored_until,
        "local_from": state.local_from,
        "intent": None if state.intent is None else _marked_to_json(state.intent),
        "graves": [_marked_to_json(grave) for grave in state.graves],
    }


def offload_from_json(value: Mapping[str, Any]) -> OffloadState:
    """Raises ValueError, KeyError, TypeError."""
    return OffloadState(
        Offset(whole(value, "stored_until")),
        Offset(whole(value, "local_from")),
        None if value["intent"] is None else _marked_from_json(value["intent"]),
        tuple(_marked_from_json(item) for item in value["graves"]),
        True,
        unknown_fields(value, _FIELDS),
    )


def _marked_to_json(marked: Marked) -> list[int]:
    return [*marked.name, marked.since_ms]


def _marked_from_json(value: Any) -> Marked:
    if not isinstance(value, list) or len(value) != _NUMBERS:
        raise ValueError(f"an object is {_NUMBERS} numbers")
    for number in value:
        if type(number) is not int or not 0 <= number < 1 << 64:
            raise ValueError(f"{number!r} is not between 0 and 2^64")
    base, ledger_id, attempt, since_ms = value
    return Marked(ObjectName(Offset(base), LedgerId(ledger_id), attempt), since_ms)
