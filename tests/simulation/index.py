"""`bookie.index.Index` with LevelDB's contract: a batch is atomic, an unsynced suffix may vanish.

One `IndexStore` per host survives its processes. A kill loses nothing (the operating system has
the write-ahead log), a power loss loses a random suffix of the batches since the last flush, and
now and then the index cannot be opened at all afterwards and must be rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bookie.errors import CorruptIndex
from client.ids import EntryId, LedgerId

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from bookie.core.append_log import LogPosition
    from bookie.core.log_format import Location
    from bookie.index import LedgerRecord
    from tests.simulation.volume import Volume


class _Batch(NamedTuple):
    entries: tuple[tuple[LedgerId, EntryId, Location], ...]
    ledgers: tuple[tuple[LedgerId, LedgerRecord], ...]
    end: LogPosition


class _Content:
    def __init__(self) -> None:
        self.entries: dict[LedgerId, dict[EntryId, Location]] = {}
        self.ledgers: dict[LedgerId, LedgerRecord] = {}
        self.end: LogPosition | None = None

    def apply(self, batch: _Batch) -> None:
        for ledger_id, entry_id, location in batch.entries:
            self.entries.setdefault(ledger_id, {})[entry_id] = location
        for ledger_id, record in batch.ledgers:
            self.ledgers[ledger_id] = record
        self.end = batch.end


class IndexStore:
    """What of one host's index survives."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._durable = _Content()
        self._unsynced: list[_Batch] = []
        self.current = _Content()
        self.corrupt = False

    def write(self, batch: _Batch) -> None:
        """Apply a batch; it is not durable yet."""
        self.current.apply(batch)
        self._unsynced.append(batch)

    def flush(self) -> None:
        """Make everything written so far durable."""
        for batch in self._unsynced:
            self._durable.apply(batch)
        self._unsynced.clear()

    def power_lost(self) -> None:
        """Lose a suffix of what was not flushed, and perhaps the ability to open at all."""
        keep = self._rng.randrange(len(self._unsynced) + 1)
        for batch in self._unsynced[:keep]:
            self._durable.apply(batch)
        self._unsynced.clear()
        self.current = _Content()
        for ledger_id, entries in self._durable.entries.items():
            self.current.entries[ledger_id] = dict(entries)
        self.current.ledgers = dict(self._durable.ledgers)
        self.current.end = self._durable.end
        self.corrupt = self.corrupt or self._rng.random() < 0.1

    def wipe(self) -> None:
        """Begin with nothing."""
        self._durable = _Content()
        self._unsynced.clear()
        self.current = _Content()
        self.corrupt = False


class SimIndex:
    """The index as one bookie process has it open."""

    def __init__(self, store: IndexStore, volume: Volume, *, wipe: bool) -> None:
        self._step = volume.step
        self._step()
        if wipe:
            store.wipe()
        if store.corrupt:
            raise CorruptIndex("simulated: the manifest is damaged")
        self._store = store

    def write(
        self,
        entries: Sequence[tuple[LedgerId, EntryId, Location]],
        ledgers: Sequence[tuple[LedgerId, LedgerRecord]],
        end: LogPosition,
    ) -> None:
        self._step()
        self._store.write(_Batch(tuple(entries), tuple(ledgers), end))

    def location(self, ledger_id: LedgerId, entry_id: EntryId) -> Location | None:
        return self._store.current.entries.get(ledger_id, {}).get(entry_id)

    def last_entry(self, ledger_id: LedgerId) -> EntryId | None:
        return max(self._store.current.entries.get(ledger_id, {}), default=None)

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        return sorted(self._store.current.entries.get(ledger_id, {}))

    def ledgers(self) -> Iterator[tuple[LedgerId, LedgerRecord]]:
        yield from sorted(self._store.current.ledgers.items())

    def end(self) -> LogPosition | None:
        return self._store.current.end

    def flush(self) -> None:
        self._step()
        self._store.flush()

    def close(self) -> None:
        """Nothing to release."""
