"""Decides which consumers read from a broker nearby, and from which one.

Any broker can read the ledgers of any partition, so any can serve what is sealed: that never
changes and is confirmed. What is written now is known to its leader only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from client.ids import BrokerId, Offset
from client.log.segments import Segment, SegmentList

NOWHERE = Offset(-1)


class Candidate(Protocol):
    """A live broker."""

    @property
    def id(self) -> BrokerId:
        """Its node id."""
        ...

    @property
    def rack(self) -> str | None:
        """Its failure domain."""
        ...


def sealed_end(listed: SegmentList) -> Offset:
    """Return the offset after the last sealed record; the log's start if nothing is sealed."""
    for item in reversed(listed.items):
        if item.end_offset is not None:
            return max(item.end_offset, listed.log_start_offset)
    return listed.log_start_offset


def stable_end(listed: SegmentList) -> Offset:
    """Return the offset below which everything sealed is decided by what is sealed, which is what
    readers of committed records may have; the log's start if that is nothing, or not known."""
    for item in reversed(listed.segments):
        if item.facts is not None:
            return max(item.facts.stable_offset, listed.log_start_offset)
    return listed.log_start_offset


def far_behind(listed: SegmentList, bytes_min: int) -> Offset:
    """Return the largest known offset from which on at least so many bytes are sealed; `NOWHERE`:
    there is none. Looks at whole segments, in the head of the list only."""
    left = bytes_min
    for item in reversed(listed.items):
        if isinstance(item, Segment):
            if item.facts is None or item.base_offset is None:
                continue
            left -= item.facts.size_bytes
        else:
            left -= item.size_bytes
        if left <= 0:
            return item.base_offset if item.base_offset is not None else NOWHERE
    return NOWHERE


def choose_replica(
    rack: str, candidates: Iterable[Candidate], topic_id: UUID, index: int
) -> BrokerId | None:
    """Return the broker in a rack that is to serve a partition there; None: there is none.

    All brokers and all consumers of a rack come to the same one, which reads each entry once for
    them; the partitions of a topic are spread over all of the rack.
    """
    near = sorted(one.id for one in candidates if one.rack == rack)
    return near[(topic_id.int + index) % len(near)] if near else None
