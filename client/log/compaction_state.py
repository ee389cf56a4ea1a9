"""How far a partition's log was compacted, and which ledgers wait to be deleted.

Stands in the head of the segment list, so it changes with the segments, in one compare-and-set. A
ledger that was replaced stays listed here, as retired, until its grace is over: whoever still
reads it by an older list, a Spark query among them, finds it, and whatever happens to the broker
meanwhile, somebody knows that it has to go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from client.ids import LedgerId, Offset
from client.metadata.json_node import whole


class Retired(NamedTuple):
    """A ledger that another one has replaced."""

    ledger_id: LedgerId
    since_ms: int


class CompactionState(NamedTuple):
    """The compaction of one partition."""

    cleaned_until: Offset = Offset(0)
    """Of records below it, only the last of each key among them is left."""
    cleaned_ms: int = -1
    """When the last round was complete; -1: never."""
    next_horizon_ms: int = -1
    """When the first tombstone below `cleaned_until` may go; -1: there is none."""
    saved_bytes: int = 0
    """What all rounds together have made the log smaller by."""
    retired: tuple[Retired, ...] = ()

    def due(self, before_ms: int) -> tuple[LedgerId, ...]:
        """Return the ledgers that were retired up to a time."""
        return tuple(one.ledger_id for one in self.retired if one.since_ms <= before_ms)


NEVER_COMPACTED: Final = CompactionState()


def state_to_json(state: CompactionState) -> dict[str, object]:
    """Return the object that stands for it in the head."""
    return {
        "cleaned_until": state.cleaned_until,
        "cleaned_ms": state.cleaned_ms,
        "next_horizon_ms": state.next_horizon_ms,
        "saved_bytes": state.saved_bytes,
        "retired": [[*one] for one in state.retired],
    }


def state_from_json(value: Mapping[str, Any]) -> CompactionState:
    """Raises ValueError, KeyError, TypeError."""
    retired: list[Retired] = []
    for ledger_id, since_ms in value["retired"]:
        if type(ledger_id) is not int or type(since_ms) is not int:
            raise ValueError("a retired ledger is two whole numbers")
        retired.append(Retired(LedgerId(ledger_id), since_ms))
    return CompactionState(
        Offset(whole(value, "cleaned_until")),
        whole(value, "cleaned_ms", -1),
        whole(value, "next_horizon_ms", -1),
        whole(value, "saved_bytes"),
        tuple(retired),
    )
