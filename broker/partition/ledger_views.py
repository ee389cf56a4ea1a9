"""One ledger of a partition, open for reading: a reader, and the known positions of offsets in it.

Decides which entries to read for an offset or a timestamp. A ledger that this broker writes has
indexes that grow with it. Any other ledger is closed, and opening it reads nothing: the segment
list says at which offset it begins, bisection finds any other offset, and every search and read
adds the positions that it finds, so that sequential readers need no further searches. Timestamps
cannot be bisected: for them the ledger's last snapshot, which lists the snapshots before it, is
read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.errors import LogReadFailed, NotReadYet
from broker.partition.archive import StillReading
from broker.partition.core.active_segment import SparseIndex
from broker.partition.core.log_limits import LogLimits
from broker.partition.core.replay import LedgerReplay, LedgerTail
from broker.partition.ledgers import Reader
from broker.partition.read_ahead import ReadAhead
from client.errors import LedgerError
from client.ids import EntryId, LedgerId, Offset
from client.log.entry_format import first_offset
from client.log.offset_search import OffsetSearch
from client.wire.bookkeeper.entry import Entry

_ENTRY_BYTES_GUESS: Final = 16 * 1024
_INSIDE_COUNT_MAX: Final = 1024
"""Rarely do more readers than that read one ledger at a time."""


async def replay_ledger(reader: Reader, limits: LogLimits, now_ms: int) -> LedgerTail:
    """Replay the end of a closed ledger that has entries. Raises LedgerError, LogCorrupt."""
    replay = LedgerReplay(reader.last_entry, reader.length, limits, now_ms)
    while (run := replay.wanted()) is not None:
        entries: list[Entry] = []
        while (at := EntryId(run[0] + len(entries))) <= run[1]:
            entries += await reader.read(at, run[1])
        replay.on_entries(run[0], [entry.payload for entry in entries])
    return replay.finish()


def unread(ledger_id: LedgerId, error: LedgerError) -> LogReadFailed:
    """Return what readers are told of a ledger that cannot be read now."""
    kind = NotReadYet if isinstance(error, StillReading) else LogReadFailed
    return kind(f"ledger {ledger_id}: {error!r}")


class LedgerView:
    """Searches and reads one ledger."""

    __slots__ = ("_ahead", "_inside", "_limits", "_offsets", "_timestamps", "is_failing", "reader")

    def __init__(
        self,
        reader: Reader,
        offsets: SparseIndex,
        timestamps: SparseIndex | None,
        limits: LogLimits,
        ahead: ReadAhead,
    ) -> None:
        """`timestamps` None: the ledger is closed, and they are read from it when needed."""
        self.reader = reader
        self.is_failing = False
        """Whether a read failed: the ledger may be gone by now, and its object be there."""
        self._offsets = offsets
        self._timestamps = timestamps
        self._limits = limits
        self._ahead = ahead.of(reader)
        self._inside = SparseIndex(_INSIDE_COUNT_MAX)
        """Offset -> entry, where reads stopped in the middle of an entry."""

    @classmethod
    def of_closed(
        cls, reader: Reader, base_offset: Offset | None, limits: LogLimits, ahead: ReadAhead
    ) -> LedgerView:
        """Create a view of a closed ledger. `base_offset`: its first offset, if known."""
        offsets = SparseIndex()
        if base_offset is not None:
            offsets.add(base_offset, EntryId(0))
        return cls(reader, offsets, None, limits, ahead)

    async def find(self, offset: Offset) -> tuple[EntryId, int]:
        """Return (entry, span): the batch with `offset` is in the `span` entries from `entry` on,
        not counting internal entries directly before the batch.
        """
        known = self._offsets.at(offset)
        if known is None:
            known = self._inside.at(offset)
        if known is not None:
            return known, 1
        last = self.reader.last_entry
        low = self._offsets.at_or_before(offset)
        high = self._offsets.after(offset)
        search = OffsetSearch(
            offset,
            EntryId(0) if low is None else low,
            EntryId(last + 1) if high is None else min(high, EntryId(last + 1)),
        )
        while search.span > self._limits.search_span_entries:
            probe = search.probe()
            (entry,) = await self.read(probe, probe)
            self.learn(entry)
            search.on_entry(probe, first_offset(entry.payload))
        return search.low, search.span

    async def before_timestamp(self, timestamp_ms: int) -> EntryId:
        """Return an entry at or before the first one that reaches the timestamp.

        Raises LogReadFailed, LogCorrupt.
        """
        if self._timestamps is None:
            self._timestamps = await self._read_timestamps()
        return self._timestamps.at_or_before(timestamp_ms - 1) or EntryId(0)

    async def _read_timestamps(self) -> SparseIndex:
        timestamps = SparseIndex()
        if self.reader.last_entry >= 0:
            try:
                tail = await replay_ledger(self.reader, self._limits, 0)
            except LedgerError as error:
                self.is_failing = not isinstance(error, StillReading)
                raise unread(self.reader.ledger_id, error) from error
            for point in tail.points:
                self._offsets.add(point.offset, point.entry_id)
                timestamps.add(point.max_timestamp_before, point.entry_id)
        return timestamps

    def run_length(self, size_max: int) -> int:
        """Estimate how many entries make up `size_max` bytes; at least one."""
        count = self.reader.last_entry + 1
        average = self.reader.length // count if count else 0
        return min(
            self._limits.read_entries_max, 1 + size_max // max(1, average or _ENTRY_BYTES_GUESS)
        )

    def learn(self, entry: Entry) -> None:
        """Remember the offset of an entry for later searches."""
        self._offsets.add(first_offset(entry.payload), entry.entry_id)

    def learn_inside(self, offset: Offset, entry: Entry) -> None:
        """Remember that an entry holds the batch at `offset`: a read that stopped there will be
        continued there."""
        self._inside.add(offset, entry.entry_id)

    def learn_next(self, offset: Offset, entry_id: EntryId) -> None:
        """Remember that an entry, if it exists, begins with `offset`: the previous one ends
        there."""
        if entry_id <= self.reader.last_entry:
            self._offsets.add(offset, entry_id)

    async def read(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        """Read an inclusive range, or the first of its entries. Raises LogReadFailed."""
        try:
            return await self._ahead.read(first, last)
        except LedgerError as error:
            self.is_failing = not isinstance(error, StillReading)
            raise unread(self.reader.ledger_id, error) from error

    def stopped(self, began: EntryId, at: EntryId, count: int, rest: Sequence[Entry] = ()) -> None:
        """A read from entry `began` stopped at entry `at` and would continue with `count` entries:
        read ahead if reads do that repeatedly. `rest`: entries from `at` on that it has already."""
        self._ahead.stopped(began, at, count, rest)

    def close(self) -> None:
        """Drop what was read ahead."""
        self._ahead.close()
