"""Which batches of transactions are void, by the list of aborted transactions of a range.

The list is what a reader of committed data would be given for the same range of offsets
(`client/log/aborted_index.py`), so cleaning looks at no marker to know it: nothing at or above the
last stable offset is cleaned, and below it everything is decided.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from client.ids import Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.wire.kafka.batches.records import BatchHeader


class AbortedRanges:
    """Aborted transactions by producer; those of one producer follow each other."""

    __slots__ = ("_found",)

    def __init__(self, listed: Iterable[AbortedTransaction] = ()) -> None:
        """`listed`: by the offsets of their markers."""
        self._found: dict[ProducerId, list[AbortedTransaction]] = {}
        for one in listed:
            self._found.setdefault(one.producer_id, []).append(one)

    def covers(self, header: BatchHeader) -> bool:
        """Whether a batch of a transaction is void."""
        found = self._found.get(header.producer_id)
        if found is None:
            return False
        at = bisect_right(found, header.base_offset, key=_first_offset) - 1
        return at >= 0 and header.base_offset < found[at].last_offset

    def ended_by(self, header: BatchHeader) -> AbortedTransaction | None:
        """Return what a marker has aborted; None: nothing that has data left."""
        for one in self._found.get(header.producer_id, ()):
            if one.last_offset == header.base_offset:
                return one
        return None


def _first_offset(one: AbortedTransaction) -> Offset:
    return one.first_offset


NOTHING_ABORTED = AbortedRanges()
