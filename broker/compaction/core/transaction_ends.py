"""How the transactions ended whose data a round of compaction meets.

The marker of a transaction stands behind its data, so whoever cleans has looked ahead: over
everything that is cleaned, and on from there until the last transaction with data in it has ended.
That comes to an end, because nothing at or above the last stable offset is cleaned.
"""

from __future__ import annotations

from bisect import bisect_right

from client.ids import Offset, ProducerId
from client.wire.kafka.batches.control_batch import Marker
from client.wire.kafka.batches.records import BatchHeader


class TransactionEnds:
    """Filled in log order, from the first batch that is cleaned on."""

    def __init__(self) -> None:
        self._open: dict[ProducerId, Offset] = {}
        """First offset of transactions without a marker so far."""
        self._starts: dict[ProducerId, list[Offset]] = {}
        self._ends: dict[ProducerId, list[Offset]] = {}
        """Aborted transactions of a producer: [start, end), in order."""

    def on_data(self, header: BatchHeader) -> None:
        """Meet a batch of a transaction."""
        self._open.setdefault(header.producer_id, header.base_offset)

    def on_marker(self, marker: Marker, offset: Offset) -> None:
        """Meet the marker that ends what is open of its producer, if anything is."""
        start = self._open.pop(marker.producer_id, None)
        if start is not None and not marker.is_commit:
            self._starts.setdefault(marker.producer_id, []).append(start)
            self._ends.setdefault(marker.producer_id, []).append(offset)

    def is_open_below(self, end: Offset) -> bool:
        """Whether some transaction has data below `end` and no marker so far."""
        return any(start < end for start in self._open.values())

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of a transaction is void."""
        starts = self._starts.get(header.producer_id)
        if starts is None:
            return False
        at = bisect_right(starts, header.base_offset) - 1
        return at >= 0 and header.base_offset < self._ends[header.producer_id][at]
