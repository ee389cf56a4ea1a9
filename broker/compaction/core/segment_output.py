"""The entries of a compacted ledger: batches together as far as they fit, between two snapshots.

A ledger begins with a snapshot as every other one does, and ends with one that says where it ends
and where in it what stands, for searches. Nobody takes a partition over from it (KEEP-TAIL in
`plan.py`), so its snapshots know of no producers. What is aborted in it, and still has data, is
listed as in every ledger (`partition/core/open_transactions.py`).
"""

from __future__ import annotations

from typing import Final

from broker.partition.core.open_transactions import (
    OpenTransactions,
    SegmentTransactions,
)
from broker.partition.core.producer_state import ProducerState
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.aborted_transactions import AbortedTransaction, seal_block
from client.log.segment import SegmentFacts, SnapshotPlace
from client.log.snapshot import IndexPoint, seal_snapshot
from client.metadata.json_node import INT64_MAX
from client.wire.kafka.batches.records import BatchHeader, Buffer

ENTRY_BYTES: Final = 64 * 1024
"""An entry is complete with this many bytes."""
_POINT_BYTES: Final = 4 * 1024 * 1024
"""Distance of the places that the last snapshot lists."""
OWN_LEDGER: Final = LedgerId(INT64_MAX)
"""In facts: the ledger that they are of, which only its writer knows."""

Entry = list[Buffer]


class SegmentOutput:
    """One ledger in the making: batches in, entries out."""

    def __init__(self, base_offset: Offset, leader_epoch: LeaderEpoch, block_entries: int) -> None:
        """`block_entries`: how many aborted transactions make a block."""
        self.base_offset = base_offset
        self._transactions = SegmentTransactions(block_entries)
        self.size_bytes = 0
        """Of entries given out, and of batches that wait."""
        self._epoch = leader_epoch
        self._max_timestamp_ms = -1
        self._entry_count = 0
        self._points: list[IndexPoint] = []
        self._next_point_bytes = 0
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0

    def begin(self) -> Entry:
        """Return the first entry."""
        return [self._snapshot(self.base_offset)]

    def add(self, batch: Buffer, header: BatchHeader) -> list[Entry]:
        """Take the next batch; return the entry that is complete now, if one is.

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
        self._transactions.is_transactional |= header.is_transactional
        return self._take() if self._waiting_bytes >= ENTRY_BYTES else []

    def on_aborted(self, entry: AbortedTransaction, stable_offset: Offset) -> list[Entry]:
        """The batch that was added last is a marker, of a transaction that has data left; return
        the entries that are complete now. `stable_offset`: what is decided behind it."""
        listed = self._transactions
        listed.on_aborted(entry, stable_offset)
        if not listed.is_block_due:
            return []
        end = Offset(entry.last_offset + 1)
        block = seal_block(listed.aborted.rest, end, self._epoch)
        found = self._take()
        found.append([block])
        listed.on_block_written(EntryId(self._entry_count))
        self._entry_count += 1
        self.size_bytes += len(block)
        return found

    def end(self, end_offset: Offset) -> list[Entry]:
        """Return the last entries: the segment ends at an offset."""
        entries = self._take()
        entries.append([self._snapshot(end_offset)])
        return entries

    def facts(self, end_offset: Offset, stable_offset: Offset) -> SegmentFacts:
        """Return what will be listed of it, once `end` was called.

        `stable_offset`: everything before it is decided by what the log holds up to the end.
        """
        self._transactions.stable_at = stable_offset
        place = SnapshotPlace(OWN_LEDGER, EntryId(self._entry_count - 1))
        return SegmentFacts(
            Offset(end_offset - 1),
            self.size_bytes,
            self._max_timestamp_ms,
            self._transactions.facts(end_offset, place),
        )

    def _take(self) -> list[Entry]:
        if not self._waiting:
            return []
        entry, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._entry_count += 1
        return [entry]

    def _snapshot(self, offset: Offset) -> bytes:
        leader, said = ProducerState().encode(), None
        if self._transactions.has_state:
            leader += OpenTransactions().encode()
            said = self._transactions.snapshot(is_first=False)
        data = seal_snapshot(
            offset, self._epoch, self._max_timestamp_ms, self._points, leader, said
        )
        self._entry_count += 1
        self.size_bytes += len(data)
        return data
