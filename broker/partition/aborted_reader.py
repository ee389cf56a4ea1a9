"""Finds the aborted transactions in a range of a partition's log: the list that is returned with
the records of a read.

The list of a decided range never changes, so it may be looked up after the records were read. It is
valid for this range only (`client/log/aborted_transactions.py` says why). No log is scanned: the
list of the active ledger is in memory, and those of sealed segments are in snapshots that their
facts name. The most recently read ones are cached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

from broker.errors import LogReadFailed
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.core.open_transactions import SegmentTransactions
from client.ids import EntryId, LedgerId, Offset
from client.log.aborted_transactions import (
    AbortedBlock,
    AbortedTransaction,
    LedgerAborted,
    open_block,
)
from client.log.segment import Segment, SnapshotPlace
from client.log.segments import SegmentList
from client.log.snapshot import NO_TRANSACTIONS, open_snapshot
from client.segments.pages import SegmentPages
from client.wire.kafka.batches.records import Buffer

K = TypeVar("K")
V = TypeVar("V")

_INDEXES_MAX: Final = 8
_BLOCKS_MAX: Final = 32
"""Cached for the sealed segments of one partition; a block takes 24 KB, an index at most that."""


class AbortedReader:
    """Looks up aborted transactions of one partition under one leader."""

    __slots__ = ("_active", "_blocks", "_indexes", "_own", "_pages", "_read_entry", "_recovered")

    def __init__(
        self,
        pages: SegmentPages,
        read_entry: Callable[[LedgerId, EntryId], Awaitable[Buffer]],
    ) -> None:
        """`read_entry` raises LogReadFailed."""
        self._pages = pages
        self._read_entry = read_entry
        self._active: ActiveSegment | None = None
        self._own: dict[LedgerId, SegmentTransactions] = {}
        """By ledger that this leader writes, or has not closed yet."""
        self._indexes: dict[LedgerId, LedgerAborted] = {}
        self._recovered: dict[LedgerId, LedgerAborted] = {}
        """Of ledgers that were recovered, as long as no snapshot says so."""
        self._blocks: dict[tuple[LedgerId, EntryId], AbortedBlock] = {}
        """Of sealed segments, least recently used first."""

    # --- reports of the leader ----------------------------------------------------------

    def on_begun(self, active: ActiveSegment) -> None:
        """A segment begins. The indexes of earlier ledgers that it lists need not be read."""
        self._active = active
        self._own[active.ledger_id] = active.transactions
        for ledger_id, index in active.transactions.earlier.items():
            _keep(self._indexes, ledger_id, index, _INDEXES_MAX)

    def on_recovered(self, indexes: Mapping[LedgerId, LedgerAborted]) -> None:
        """There is no ledger whose first snapshot would list these."""
        self._recovered.update(indexes)

    def on_sealed(self, ledger_id: LedgerId) -> None:
        """A ledger of this leader is closed, and its facts are listed."""
        own = self._own.pop(ledger_id, None)
        if own is not None:
            _keep(self._indexes, ledger_id, own.aborted, _INDEXES_MAX)
            for entry_id, block in [*own.blocks.items()][-_BLOCKS_MAX:]:
                _keep(self._blocks, (ledger_id, entry_id), block, _BLOCKS_MAX)

    def forget(self, ledger_id: LedgerId) -> None:
        """A ledger was removed from the list."""
        self._own.pop(ledger_id, None)
        self._recovered.pop(ledger_id, None)
        self._indexes.pop(ledger_id, None)

    # --- lookups ------------------------------------------------------------------------

    def find_now(
        self, listed: SegmentList, start: Offset, end: Offset
    ) -> Sequence[AbortedTransaction] | None:
        """Return the transactions aborted in [start, end), in the order of their markers; None:
        that takes I/O.

        Everything before `end` must be decided.
        """
        active = self._active
        if active is not None and start >= active.base_offset:
            return active.transactions.within(start, end)
        segments: list[Segment] = []
        for segment in reversed(listed.segments):
            segments.append(segment)
            if segment.base_offset is not None and segment.base_offset <= start:
                break
        else:
            return None  # the range begins in a page of the list
        found: list[AbortedTransaction] = []
        for segment in reversed(segments):
            own = self._own.get(segment.ledger_id)
            index = self._index(segment, own)
            if index is None:
                return None
            blocks: dict[EntryId, AbortedBlock] = {}
            for entry_id in index.wanted(start, end):
                block = self._block(segment.ledger_id, entry_id, own)
                if block is None:
                    return None
                blocks[entry_id] = block
            found += index.within(start, end, blocks)
            if _is_decided(segment, end):
                break
        return found

    async def find(
        self, listed: SegmentList, start: Offset, end: Offset
    ) -> Sequence[AbortedTransaction]:
        """Like `find_now`, but read what is needed. `listed` is the current list: a ledger of this
        leader that is closed while others are read has no facts in it.

        Raises MetadataError, LogReadFailed, LogCorrupt.
        """
        known = self.find_now(listed, start, end)
        if known is not None:
            return known
        own = dict(self._own)
        found: list[AbortedTransaction] = []
        walk = self._pages.segments(listed, lambda ref: ref.end_offset > start)
        async with aclosing(walk):
            async for segment in walk:
                if segment.end_offset is not None and segment.end_offset <= start:
                    continue
                found += await self._find_in(segment, start, end, own.get(segment.ledger_id))
                if _is_decided(segment, end):
                    break
        return found

    async def _find_in(
        self, segment: Segment, start: Offset, end: Offset, own: SegmentTransactions | None
    ) -> Sequence[AbortedTransaction]:
        index = self._index(segment, own)
        if index is None:
            index = await self._read_index(segment)
        ledger_id = segment.ledger_id
        blocks: dict[EntryId, AbortedBlock] = {}
        for entry_id in index.wanted(start, end):
            block = self._block(ledger_id, entry_id, own)
            if block is None:
                block = open_block(await self._read_entry(ledger_id, entry_id))
                _keep(self._blocks, (ledger_id, entry_id), block, _BLOCKS_MAX)
            blocks[entry_id] = block
        return index.within(start, end, blocks)

    def _index(self, segment: Segment, own: SegmentTransactions | None) -> LedgerAborted | None:
        """Return a segment's index; None: it must be read."""
        if own is not None:
            return own.aborted
        if segment.facts is None:
            return None  # our former ledger: its facts are not in this list
        if _place(segment) is None:
            return NO_TRANSACTIONS.aborted
        index = self._recovered.get(segment.ledger_id)
        if index is not None:
            return index
        index = self._indexes.get(segment.ledger_id)
        if index is not None:
            _keep(self._indexes, segment.ledger_id, index, _INDEXES_MAX)
        return index

    def _block(
        self, ledger_id: LedgerId, entry_id: EntryId, own: SegmentTransactions | None
    ) -> AbortedBlock | None:
        if own is not None:
            return own.blocks[entry_id]
        block = self._blocks.get((ledger_id, entry_id))
        if block is not None:
            _keep(self._blocks, (ledger_id, entry_id), block, _BLOCKS_MAX)
        return block

    async def _read_index(self, segment: Segment) -> LedgerAborted:
        place = _place(segment)
        if place is None:
            raise LogReadFailed(
                f"ledger {segment.ledger_id} is not written here any more, and not sealed yet"
            )
        said = open_snapshot(await self._read_entry(*place)).transactions or NO_TRANSACTIONS
        index = said.index_of(segment.ledger_id, own=place.ledger_id)
        _keep(self._indexes, segment.ledger_id, index, _INDEXES_MAX)
        return index


def _place(segment: Segment) -> SnapshotPlace | None:
    """Return where a segment's aborted transactions are listed; None: it has none."""
    known = segment.facts.transactions if segment.facts is not None else None
    return None if known is None else known.aborted_at


def _is_decided(segment: Segment, end: Offset) -> bool:
    """Whether no later segment can have a marker for data before `end`."""
    return segment.facts is not None and segment.facts.stable_offset >= end


def _keep(kept: dict[K, V], key: K, value: V, count_max: int) -> None:
    """Keep a value as the most recently used one of at most `count_max`."""
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > count_max:
        del kept[next(iter(kept))]
