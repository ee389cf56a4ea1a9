"""Find out which transactions of a range of offsets were aborted, without reading the range.

The facts of sealed segments name where their aborted transactions are listed, and how far all is
decided at their end (`client/log/aborted_transactions.py`). A range is asked of the segment where
it begins and those behind it, up to one that has decided all of it: one or two entries each, and
none where nothing was aborted. Where that is not known yet, because a transaction of the range
ended in the ledger that is being written, the answer is None: the leader knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from client.errors import LedgerError, LogCorrupt, RemoteProtocolError
from client.ids import EntryId, LedgerId, Offset
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.log.aborted_transactions import AbortedBlock, LedgerAborted, index_run, open_block
from client.log.segment import Segment, SnapshotPlace
from client.log.snapshot import open_snapshot
from client.spark.splits import AbortedTransaction, OffsetRange
from client.wire.bookkeeper.entry import Entry

_UNREADABLE: Final = (LedgerError, LogCorrupt, RemoteProtocolError)


class EntrySource(Protocol):
    """Where segments are listed, and single entries read; see `ledger_splits.LedgerSource`."""

    async def segments(
        self, topic_id: str, partition: int, start: int, end: int
    ) -> Sequence[Segment]: ...

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata: ...

    async def entry(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, entry_id: int
    ) -> Entry: ...


class AbortedLookup:
    """Looks aborted transactions up for one plan; what was read is kept for its other ranges."""

    def __init__(self, source: EntrySource) -> None:
        self._source = source
        self._segments: dict[tuple[str, int, int], Sequence[Segment]] = {}
        self._indexes: dict[LedgerId, LedgerAborted] = {}
        self._blocks: dict[tuple[LedgerId, EntryId], AbortedBlock] = {}

    async def within(
        self, whole: OffsetRange, segments: Sequence[Segment], start: int, end: int
    ) -> tuple[AbortedTransaction, ...] | None:
        """Return what is aborted in [start, end), which begins in the first of `segments`.

        None: no ledger can say for all of it. Raises MetadataError, and LogCorrupt for a segment
        list that makes no sense.
        """
        run, is_certain = index_run(segments, Offset(end))
        last = segments[-1]
        while not is_certain and last.end_offset is not None:
            behind = await self._at(whole, last.end_offset)
            new = [one for one in behind if one.ledger_id != last.ledger_id]
            if not new or new[0].facts is None:
                return None
            segments = [*segments, *new]
            run, is_certain = index_run(segments, Offset(end))
            last = segments[-1]
        if not is_certain:
            return None
        try:
            lists = await asyncio.gather(*(self._listed(one, start, end) for one in run))
        except _UNREADABLE:
            return None
        return tuple(AbortedTransaction(*found) for one in lists for found in one)

    async def _at(self, whole: OffsetRange, offset: int) -> Sequence[Segment]:
        """Return the segment that holds an offset, if there is one."""
        at = whole.topic_id, whole.partition, offset
        if at not in self._segments:
            self._segments[at] = await self._source.segments(*at, offset + 1)
        return self._segments[at]

    async def _listed(
        self, segment: Segment, start: int, end: int
    ) -> Sequence[tuple[int, int, int]]:
        """Return what one segment's index lists for a range. Raises LedgerError, LogCorrupt."""
        assert segment.facts is not None and segment.facts.transactions is not None
        place = segment.facts.transactions.aborted_at
        assert place is not None
        index = await self._index(segment.ledger_id, place)
        blocks: dict[EntryId, AbortedBlock] = {}
        for entry_id in index.wanted(Offset(start), Offset(end)):
            blocks[entry_id] = await self._block(segment.ledger_id, entry_id)
        return index.within(Offset(start), Offset(end), blocks)

    async def _index(self, ledger_id: LedgerId, place: SnapshotPlace) -> LedgerAborted:
        if ledger_id not in self._indexes:
            snapshot = open_snapshot(await self._payload(place.ledger_id, place.entry_id))
            if snapshot.transactions is None:
                raise LogCorrupt(f"no transactions in the snapshot at {place}")
            found = snapshot.transactions.index_of(ledger_id, own=place.ledger_id)
            self._indexes[ledger_id] = found
        return self._indexes[ledger_id]

    async def _block(self, ledger_id: LedgerId, entry_id: EntryId) -> AbortedBlock:
        at = ledger_id, entry_id
        if at not in self._blocks:
            self._blocks[at] = open_block(await self._payload(ledger_id, entry_id))
        return self._blocks[at]

    async def _payload(self, ledger_id: LedgerId, entry_id: EntryId) -> memoryview:
        metadata = await self._source.describe(ledger_id)
        entry = await self._source.entry(ledger_id, metadata, entry_id)
        return memoryview(entry.payload)
