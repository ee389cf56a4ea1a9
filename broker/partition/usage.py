"""Sizes and open transactions of a led partition, for metrics and administrators."""

from __future__ import annotations

from broker.partition.core.leader import PartitionLeader
from client.log.segments import SegmentList


class LogUsage:
    """Bytes and transactions of one led partition."""

    __slots__ = ("_leader",)

    def __init__(self, leader: PartitionLeader) -> None:
        self._leader = leader

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole log, each counted once."""
        return self._leader.size_bytes

    @property
    def listed(self) -> SegmentList:
        """The segment list as this leader has last changed it."""
        return self._leader.segments

    @property
    def in_flight_bytes(self) -> int:
        """Bytes accepted and not confirmed."""
        return self._leader.log.in_flight_bytes

    @property
    def open_transactions(self) -> int:
        """Transactions that have data and no marker."""
        return len(self._leader.log.fold.transactions)

    @property
    def oldest_open_ms(self) -> int | None:
        """When the first batch of the oldest of them was accepted."""
        for _, known in self._leader.log.fold.transactions:
            return known.started_ms
        return None

    @property
    def undecided_records(self) -> int:
        """Records from the last stable offset on, which readers of committed data wait for."""
        offsets = self._leader.log.offsets
        return offsets.high_watermark - offsets.last_stable

    @property
    def held_bytes(self) -> int:
        """Bytes of batches that are held until coordinators have verified their transactions."""
        return self._leader.log.held.size_bytes
