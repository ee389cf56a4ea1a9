"""Decides which consumers fetch from a broker in their rack, and from which one (KIP-392).

Any broker can read the ledgers of any partition, so any broker can serve sealed segments: they are
confirmed and never change. Only the leader knows the end of the active segment.
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
    """Return the last stable offset as far as sealed segments decide it: the bound of
    read_committed consumers. The log start offset if nothing is decided, or it is not known."""
    for item in reversed(listed.segments):
        if item.facts is not None:
            return max(item.facts.stable_offset, listed.log_start_offset)
    return listed.log_start_offset


def redirect_offset_max(listed: SegmentList, bytes_min: int) -> Offset:
    """Return the largest known offset with at least `bytes_min` sealed bytes at or after it;
    `NOWHERE`: there is none. Looks at whole segments, in the head of the list only."""
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
    """Return the broker that serves a partition in a rack; None: the rack has none.

    All brokers and all consumers of a rack get the same one, so it reads each entry once for all of
    them. The partitions of a topic are spread over all brokers of the rack.
    """
    near = sorted(one.id for one in candidates if one.rack == rack)
    return near[(topic_id.int + index) % len(near)] if near else None
