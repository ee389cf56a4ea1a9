"""The entries of a compacted ledger: batches together as far as they fit, between two snapshots.

A ledger begins with a snapshot as every other one does, and ends with one that says where it ends
and where in it what stands, for searches. Nobody takes a partition over from it (KEEP-TAIL in
`plan.py`), so its snapshots know of no producers.
"""

from __future__ import annotations

from typing import Final

from broker.partition.core.producer_state import ProducerState
from client.ids import EntryId, LeaderEpoch, Offset
from client.log.segment import SegmentFacts
from client.log.snapshot import IndexPoint, seal_snapshot
from client.wire.kafka.batches.records import BatchHeader, Buffer

ENTRY_BYTES: Final = 64 * 1024
"""An entry is complete with so many bytes."""
_POINT_BYTES: Final = 4 * 1024 * 1024
"""Distance of the places that the last snapshot lists."""


class SegmentOutput:
    """One ledger in the making: batches in, entries out."""

    def __init__(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        self.base_offset = base_offset
        self.size_bytes = 0
        """Of entries given out, and of batches that wait."""
        self._epoch = leader_epoch
        self._max_timestamp_ms = -1
        self._entry_count = 0
        self._points: list[IndexPoint] = []
        self._next_point_bytes = 0
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0

    def begin(self) -> bytes:
        """Return the first entry."""
        return self._snapshot(self.base_offset)

    def add(self, batch: Buffer, header: BatchHeader) -> list[Buffer]:
        """Take the next batch; return an entry if one is complete, else nothing.

        `header`: of the batch as it is now.
        """
        if not self._waiting and self.size_bytes >= self._next_point_bytes:
            self._next_point_bytes = self.size_bytes + _POINT_BYTES
            point = IndexPoint(
                header.base_offset, EntryId(self._entry_count), self._max_timestamp_ms
            )
            self._points.append(point)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        self.size_bytes += len(batch)
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp)
        return self._take() if self._waiting_bytes >= ENTRY_BYTES else []

    def end(self, end_offset: Offset) -> list[list[Buffer]]:
        """Return the last entries: the segment ends at an offset."""
        last = [self._take()] if self._waiting else []
        return [*last, [self._snapshot(end_offset)]]

    def facts(self, end_offset: Offset) -> SegmentFacts:
        """Return what will be listed of it, once `end` was called."""
        return SegmentFacts(Offset(end_offset - 1), self.size_bytes, self._max_timestamp_ms)

    def _take(self) -> list[Buffer]:
        entry, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._entry_count += 1
        return entry

    def _snapshot(self, offset: Offset) -> bytes:
        data = seal_snapshot(
            offset, self._epoch, self._max_timestamp_ms, self._points, ProducerState().encode()
        )
        self._entry_count += 1
        self.size_bytes += len(data)
        return data
