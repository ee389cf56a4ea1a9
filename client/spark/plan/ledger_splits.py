"""Map ranges of offsets to entries of ledgers, and cut them into splits.

It asks a `LedgerSource` for segment lists, metadata and single entries; tests have one in memory.

- Cuts are at entries whose offset was read, so every split is exact in offsets as well as in
  entries: whoever cannot read the entries can still read the offsets elsewhere.
- An open ledger is read up to the last add confirmed that its bookies know, never beyond. That
  lags behind the writer by an entry or so; the rest, and whatever else ledgers cannot serve (a
  ledger that is gone, a roll under way, offsets that were trimmed), goes to the broker, which has
  the newest records in its cache and knows what loss is.
- For readers of committed data each split has what is aborted in it, as far as sealed segments know
  (`aborted_lookup.py`).
- A stale segment list is harmless for the same reason: what it does not show goes to the broker.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from client.errors import LedgerError, LogCorrupt, RemoteProtocolError
from client.ids import EntryId, LedgerId, Offset
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.log.entry_format import first_offset, next_offset
from client.log.offset_search import OffsetSearch
from client.log.segments import Segment
from client.log.snapshot import snapshot_points
from client.spark.plan.aborted_lookup import AbortedLookup
from client.spark.plan.task_sizing import multiple, shared
from client.spark.splits import (
    AbortedTransaction,
    BrokerSplit,
    LedgerSplit,
    OffsetRange,
    Position,
    Split,
)
from client.wire.bookkeeper.entry import Entry

INDEX_ENTRIES_MIN: Final = 64
"""Ledgers with fewer entries are searched without a look at their last snapshot."""

_UNREADABLE: Final = (LedgerError, LogCorrupt, RemoteProtocolError)


class LedgerSource(Protocol):
    """Where segment lists and ledgers are looked up."""

    async def segments(
        self, topic_id: str, partition: int, start: int, end: int
    ) -> Sequence[Segment]:
        """Return the segments that may hold offsets of [start, end), in order; none if the
        partition is deleted. Raises MetadataError, LogCorrupt.
        """
        ...

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Return a ledger's metadata. Raises NoSuchLedger, MetadataError."""
        ...

    async def last_confirmed(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> EntryId:
        """Return the last add confirmed that an open ledger's bookies know. Raises LedgerError."""
        ...

    async def entry(self, ledger_id: LedgerId, metadata: LedgerMetadata, entry_id: int) -> Entry:
        """Return one entry. Raises LedgerError."""
        ...


@dataclass(frozen=True)
class SplitLimits:
    """How much one task reads, and how many tasks there should be at least."""

    partition_bytes_max: int
    partition_records_max: int | None = None
    partition_count_min: int | None = None


class _Ledger(NamedTuple):
    """A ledger as far as it may be read."""

    segment: Segment
    metadata: LedgerMetadata
    last_entry: int
    end_offset: Offset
    """Offset after the last readable record."""
    length: int
    """Payload bytes up to `last_entry`."""


class _Piece(NamedTuple):
    """Consecutive entries of a ledger that hold [start, end)."""

    whole: OffsetRange
    ledger: _Ledger
    first_entry: int
    last_entry: int
    start: int
    end: int
    following: Sequence[Segment] = ()
    """The segments of the range, in which its transactions may end."""

    @property
    def entry_count(self) -> int:
        """How many entries, at least one."""
        return self.last_entry - self.first_entry + 1

    @property
    def size(self) -> int:
        """About how many bytes."""
        return self.ledger.length * self.entry_count // (self.ledger.last_entry + 1)


class LedgerSplitter:
    """Plans ranges of offsets; what bookies cannot say goes to brokers.

    Raises MetadataError, and LogCorrupt for a segment list that makes no sense.
    """

    def __init__(
        self, ledger_source: LedgerSource, limits: SplitLimits, *, read_committed: bool = False
    ) -> None:
        self._source = ledger_source
        self._limits = limits
        self._aborted = AbortedLookup(ledger_source) if read_committed else None

    async def split(self, ranges: Sequence[OffsetRange]) -> list[Split]:
        """Return splits that hold every offset of the ranges once, in order."""
        found = await asyncio.gather(*(self._pieces(one) for one in ranges if len(one)))
        parts = [part for parts in found for part in parts]
        counts = self._counts([part for part in parts if isinstance(part, _Piece)])
        splits = await asyncio.gather(
            *(
                self._splits(part, next(counts)) if isinstance(part, _Piece) else _alone(part)
                for part in parts
            )
        )
        return [split for some in splits for split in some]

    async def locate(self, end: OffsetRange) -> Position | None:
        """Return the entry with the last record below `end.end`; None: no ledger says."""
        target = end.end - 1
        listed = await self._source.segments(end.topic_id, end.partition, target, end.end)
        for segment in reversed(listed):
            if segment.base_offset is not None and segment.base_offset <= target:
                ledger = await self._ledger(segment)
                if ledger is None or target >= ledger.end_offset:
                    return None
                try:
                    entry_id = await self._find(ledger, target, end.hint)
                except _UNREADABLE:
                    return None
                return Position(segment.ledger_id, entry_id)
        return None

    async def _pieces(self, whole: OffsetRange) -> list[_Piece | BrokerSplit]:
        """Return what ledgers, and in between brokers, have of a range."""
        listed = await self._source.segments(
            whole.topic_id, whole.partition, whole.start, whole.end
        )
        wanted = [one for one in listed if _overlaps(one, whole)]
        ledgers = await asyncio.gather(*(self._ledger(segment) for segment in wanted))
        readable = [one for one in ledgers if one is not None and _overlap(one, whole)]
        pieces = await asyncio.gather(*(self._piece(one, whole) for one in readable))
        parts: list[_Piece | BrokerSplit] = []
        position = whole.start
        for piece in pieces:
            if piece is None:
                continue
            if position < piece.start:
                parts.append(_broker_split(whole, position, piece.start))
            parts.append(piece._replace(following=listed))
            position = piece.end
        if position < whole.end:
            parts.append(_broker_split(whole, position, whole.end))
        return parts

    async def _ledger(self, segment: Segment) -> _Ledger | None:
        """Look a ledger up; None: its bookies or its metadata cannot say what is in it."""
        try:
            metadata = await self._source.describe(segment.ledger_id)
            if metadata.is_closed and segment.end_offset is not None:
                return _Ledger(
                    segment, metadata, metadata.last_entry, segment.end_offset, metadata.length
                )
            last = metadata.last_entry
            if not metadata.is_closed:
                last = await self._source.last_confirmed(segment.ledger_id, metadata)
            if last < 0:
                return None
            entry = await self._source.entry(segment.ledger_id, metadata, last)
        except _UNREADABLE:
            return None
        return _Ledger(segment, metadata, last, next_offset(entry.payload), entry.length)

    async def _piece(self, ledger: _Ledger, whole: OffsetRange) -> _Piece | None:
        found = _overlap(ledger, whole)
        assert found is not None
        start, end = found
        try:
            first = await self._find(ledger, start, whole.hint)
            last = ledger.last_entry
            if end < ledger.end_offset:
                last = await self._find(ledger, end - 1, None)
        except _UNREADABLE:
            return None
        return _Piece(whole, ledger, first, last, start, end)

    async def _find(self, ledger: _Ledger, offset: int, hint: Position | None) -> int:
        """Return the last entry that stands at or before an offset. Raises LedgerError."""
        base = ledger.segment.base_offset
        assert base is not None
        search = OffsetSearch(
            Offset(offset),
            EntryId(0),
            EntryId(ledger.last_entry + 1),
            low_offset=base,
            high_offset=ledger.end_offset,
        )
        if hint is not None and hint.ledger_id == ledger.segment.ledger_id:
            for entry_id in (hint.entry_id, hint.entry_id + 1):
                await self._look(ledger, search, entry_id)
        elif ledger.metadata.is_closed and ledger.last_entry >= INDEX_ENTRIES_MIN:
            entry = await self._entry(ledger, ledger.last_entry)
            search.on_entry(EntryId(ledger.last_entry), first_offset(entry.payload))
            for point in snapshot_points(entry.payload):
                search.on_entry(point.entry_id, point.offset)
        while not search.is_done:
            await self._look(ledger, search, search.probe())
        return search.low

    async def _look(self, ledger: _Ledger, search: OffsetSearch, entry_id: int) -> None:
        if 0 <= entry_id <= ledger.last_entry:
            entry = await self._entry(ledger, entry_id)
            search.on_entry(EntryId(entry_id), first_offset(entry.payload))

    async def _entry(self, ledger: _Ledger, entry_id: int) -> Entry:
        return await self._source.entry(ledger.segment.ledger_id, ledger.metadata, entry_id)

    def _counts(self, pieces: Sequence[_Piece]) -> Iterator[int]:
        """Yield how many splits each piece becomes, so that there are enough of them.

        And not one more than that, or than a multiple (see `task_sizing.cut`).
        """
        limits = self._limits
        counts_max = [piece.entry_count for piece in pieces]
        counts = []
        for piece in pieces:
            count = -(-piece.size // limits.partition_bytes_max)
            if limits.partition_records_max is not None:
                count = max(count, -(-(piece.end - piece.start) // limits.partition_records_max))
            counts.append(max(1, min(count, piece.entry_count)))
        if limits.partition_count_min is not None:
            sizes = [piece.size for piece in pieces]
            wanted = multiple(sum(counts), limits.partition_count_min)
            counts = shared(counts, sizes, counts_max, wanted)
        return iter(counts)

    async def _splits(self, part: _Piece, count: int) -> list[Split]:
        """Cut what one ledger has of a range into `count` splits at entries."""
        cuts = [part.first_entry + part.entry_count * at // count for at in range(1, count)]
        try:
            entries = await asyncio.gather(*(self._entry(part.ledger, cut) for cut in cuts))
        except _UNREADABLE:
            return [_broker_split(part.whole, part.start, part.end)]
        edges = [(part.first_entry, part.start)]
        for cut, entry in zip(cuts, entries, strict=True):
            offset = first_offset(entry.payload)
            if edges[-1][1] < offset < part.end:
                edges.append((cut, offset))
        edges.append((part.last_entry + 1, part.end))
        metadata = metadata_codec.encode(part.ledger.metadata)
        return [
            LedgerSplit(
                topic_id=part.whole.topic_id,
                topic=part.whole.topic,
                partition=part.whole.partition,
                ledger_id=part.ledger.segment.ledger_id,
                first_entry=first,
                last_entry=following - 1,
                offset_start=start,
                offset_end=end,
                metadata=metadata,
                aborted=await self._aborted_within(part, start, end),
            )
            for (first, start), (following, end) in itertools.pairwise(edges)
        ]

    async def _aborted_within(
        self, piece: _Piece, start: int, end: int
    ) -> Sequence[AbortedTransaction] | None:
        """Return what is aborted in a range of a piece, if that is asked for and known."""
        if self._aborted is None:
            return None
        ids = [one.ledger_id for one in piece.following]
        since = piece.following[ids.index(piece.ledger.segment.ledger_id) :]
        return await self._aborted.within(piece.whole, since, start, end)


async def _alone(split: BrokerSplit) -> list[Split]:
    return [split]


def _overlaps(segment: Segment, whole: OffsetRange) -> bool:
    """Whether a segment may hold some of a range, and where it begins is known."""
    if segment.base_offset is None or segment.base_offset >= whole.end:
        return False
    return segment.end_offset is None or max(segment.base_offset, whole.start) < segment.end_offset


def _overlap(ledger: _Ledger, whole: OffsetRange) -> tuple[int, int] | None:
    """Return what a ledger has of a range, if anything."""
    assert ledger.segment.base_offset is not None
    start = max(ledger.segment.base_offset, whole.start)
    end = min(ledger.end_offset, whole.end)
    return (start, end) if start < end else None


def _broker_split(whole: OffsetRange, start: int, end: int) -> BrokerSplit:
    return BrokerSplit(whole.topic_id, whole.topic, whole.partition, -1, start, end)
