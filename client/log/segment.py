"""A segment: one ledger as an offset range of a partition, and its JSON.

What a list of segments is, and how it changes, is `segments.py`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from client.ids import LeaderEpoch, LedgerId, Offset
from client.metadata.json_node import INT64_MAX, whole


class SegmentFacts(NamedTuple):
    """What is known of a segment once nothing can be added to it."""

    last_offset: Offset
    """Base offset - 1 when it holds no record."""
    size_bytes: int
    """0 only if its ledger has no entry at all: a snapshot has a size, too."""
    max_timestamp_ms: int
    """-1: no record has a timestamp."""


class Segment(NamedTuple):
    """One ledger as an offset range of the partition."""

    ledger_id: LedgerId
    base_offset: Offset | None
    """None from its listing by a roll until the previous ledger is closed."""
    leader_epoch: LeaderEpoch
    created_ms: int
    facts: SegmentFacts | None = None
    """None until sealed."""
    cleaned: bool = False
    """Whether it was compacted: then offsets may be missing anywhere in it, its end included."""

    @property
    def end_offset(self) -> Offset | None:
        """Offset after its last record; None until sealed."""
        return None if self.facts is None else Offset(self.facts.last_offset + 1)

    @property
    def first_epoch(self) -> LeaderEpoch:
        """Like a page's."""
        return self.leader_epoch

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Like a page's."""
        return self.leader_epoch


def segment_to_json(segment: Segment) -> dict[str, int | None]:
    """Return the object that stands for a segment in a node."""
    value: dict[str, int | None] = {
        "ledger": segment.ledger_id,
        "base_offset": segment.base_offset,
        "leader_epoch": segment.leader_epoch,
        "created_ms": segment.created_ms,
    }
    if segment.facts is not None:
        value["last_offset"] = segment.facts.last_offset
        value["bytes"] = segment.facts.size_bytes
        value["max_timestamp_ms"] = segment.facts.max_timestamp_ms
    if segment.cleaned:
        value["cleaned"] = True
    return value


def segment_from_json(value: Mapping[str, Any]) -> Segment:
    """Raises ValueError, KeyError, TypeError."""
    facts = None
    if "last_offset" in value:
        facts = SegmentFacts(
            Offset(whole(value, "last_offset", -1)),
            whole(value, "bytes"),
            whole(value, "max_timestamp_ms", -INT64_MAX - 1),
        )
    return Segment(
        LedgerId(whole(value, "ledger")),
        Offset(whole(value, "base_offset")) if value["base_offset"] is not None else None,
        LeaderEpoch(whole(value, "leader_epoch")),
        whole(value, "created_ms"),
        facts,
        value.get("cleaned") is True,
    )
