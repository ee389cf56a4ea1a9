"""How much a led partition holds, for metrics and administrators."""

from __future__ import annotations

from broker.partition.core.leader import PartitionLeader
from client.log.segments import SegmentList


class LogUsage:
    """Bytes of one led partition."""

    def __init__(self, leader: PartitionLeader) -> None:
        self._leader = leader

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole log, each counted once."""
        return self._leader.size_bytes

    @property
    def listed(self) -> SegmentList:
        """The segment list as this leader has changed it last."""
        return self._leader.segments

    @property
    def in_flight_bytes(self) -> int:
        """Bytes accepted and not confirmed."""
        return self._leader.log.in_flight_bytes
