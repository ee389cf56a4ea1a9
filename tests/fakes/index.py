"""An index for bookie tests: what was not flushed is lost with the power, newest first.

`IndexStore` is what survives a process; `MemoryIndex` is one process's view of it. The contract
suite in `tests/unit/bookie/test_index.py` runs on this and on LevelDB.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from bookie.core.append_log import LogPosition
from bookie.core.log_format import Location
from bookie.errors import CorruptIndex
from bookie.index import LedgerRecord
from client.ids import EntryId, LedgerId

Batch = tuple[
    Sequence[tuple[LedgerId, EntryId, Location]],
    Sequence[tuple[LedgerId, LedgerRecord]],
    LogPosition,
]


class IndexStore:
    """What of an index survives."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.batches: list[Batch] = []
        self.flushed = 0
        """How many batches are durable."""
        self.is_corrupt = False
        """The next attempt to open it fails."""
        self.is_broken = False
        """Writes fail."""

    def power_lost(self) -> None:
        """Keep what was flushed and some of what followed."""
        unsynced = len(self.batches) - self.flushed
        del self.batches[self.flushed + self._rng.randrange(unsynced + 1) :]

    def wipe(self) -> None:
        """Begin with nothing."""
        self.batches.clear()
        self.flushed = 0
        self.is_corrupt = False


class MemoryIndex:
    """`bookie.index.Index` on dictionaries."""

    def __init__(self, store: IndexStore, *, wipe: bool) -> None:
        if wipe:
            store.wipe()
        if store.is_corrupt:
            raise CorruptIndex("the index cannot be opened")
        self._store = store
        self._entries: dict[LedgerId, dict[EntryId, Location]] = {}
        self._ledgers: dict[LedgerId, LedgerRecord] = {}
        self._end: LogPosition | None = None
        self.is_closed = False
        for batch in store.batches:
            self._apply(batch)

    def write(
        self,
        entries: Sequence[tuple[LedgerId, EntryId, Location]],
        ledgers: Sequence[tuple[LedgerId, LedgerRecord]],
        end: LogPosition,
    ) -> None:
        if self._store.is_broken:
            raise CorruptIndex("the index cannot be written")
        batch = (tuple(entries), tuple(ledgers), end)
        self._store.batches.append(batch)
        self._apply(batch)

    def _apply(self, batch: Batch) -> None:
        entries, ledgers, self._end = batch
        for ledger_id, entry_id, location in entries:
            self._entries.setdefault(ledger_id, {})[entry_id] = location
        self._ledgers.update(ledgers)

    def location(self, ledger_id: LedgerId, entry_id: EntryId) -> Location | None:
        return self._entries.get(ledger_id, {}).get(entry_id)

    def last_entry(self, ledger_id: LedgerId) -> EntryId | None:
        return max(self._entries.get(ledger_id, {}), default=None)

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        return sorted(self._entries.get(ledger_id, {}))

    def ledgers(self) -> Iterator[tuple[LedgerId, LedgerRecord]]:
        yield from sorted(self._ledgers.items())

    def end(self) -> LogPosition | None:
        return self._end

    def flush(self) -> None:
        self._store.flushed = len(self._store.batches)

    def close(self) -> None:
        self.is_closed = True
