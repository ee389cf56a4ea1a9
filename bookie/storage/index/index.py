"""The index: from (ledger, entry) to a place in the log, and what is known of each ledger.

The index is a cache of the log, rebuilt from it when it is lost. Its writes are not synced: a
start replays the log from the last checkpoint, and a checkpoint is taken only after `flush`.
Covers its keys and values; what keeps them is a `KeyValues` (LevelDB in production, a simulated
one in the simulator):

    "d" ledger 8           ->  a deleted ledger: fenced 1 · cleared 1 · milliseconds 8
    "e" ledger 8 entry 8   ->  file number 4 · position 4 · size 4
    "l" ledger 8           ->  fenced 1 · key length 1 · master key · explicit LAC packet
    "t" file number 4      ->  tally of that log file, see `core/tally.py`
    "z"                    ->  file number 4 · position 4: the index reflects the log up to here
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from bookie.errors import CorruptIndex
from bookie.storage.core.append_log import LogPosition
from bookie.storage.core.ledger_guard import Ledger
from bookie.storage.core.log_format import Deletion
from bookie.storage.core.tally import Tally, decode_tally
from bookie.storage.index.entry_places import (
    BEHIND_ENTRIES,
    ENTRY_KEY,
    ENTRY_TAG,
    LEDGER_KEY,
    LOCATION,
    EntryPlace,
    EntryPlaces,
    after,
)
from bookie.storage.index.key_values import KeyValues
from client.ids import LedgerId


class LedgerRecord(NamedTuple):
    """What the index keeps about a ledger."""

    master_key: bytes
    fenced: bool
    explicit_lac: bytes | None


def record_of(ledger: Ledger) -> LedgerRecord:
    """Return what the index keeps about `ledger`."""
    return LedgerRecord(ledger.master_key, ledger.fenced, ledger.explicit_lac)


_TALLY_KEY: Final = struct.Struct(">cI")
_POSITION: Final = struct.Struct(">II")
_LEDGER: Final = struct.Struct(">?B")
_DELETED: Final = struct.Struct(">??q")
_DELETED_TAG: Final = b"d"
_LEDGER_TAG: Final = b"l"
_TALLY_TAG: Final = b"t"
_END: Final = b"z"


class Index:
    """Synchronous: called at start, or inside jobs that `disk.py` runs off the event loop.

    All methods raise CorruptIndex when the index itself is damaged.
    """

    def __init__(self, store: KeyValues) -> None:
        self._store = store
        self.places = EntryPlaces(store)
        """Where the entries are."""
        self.flush = store.flush
        """Return when everything written so far survives a power loss."""
        self.memory_bytes = store.memory_bytes
        """Return about how much memory the index takes; any thread may ask."""
        self.close = store.close
        """Release the index."""

    def write(
        self,
        entries: Sequence[EntryPlace],
        ledgers: Sequence[tuple[LedgerId, LedgerRecord]],
        end: LogPosition,
        *,
        deletions: Sequence[tuple[LedgerId, Deletion]] = (),
    ) -> None:
        """Apply changes in one atomic step; later items of a list win. `end`: see `end()`.

        Deletions come last: the ledgers are gone, though their entries stay until
        `clear_entries` took them.
        """
        batch = self._store.batch()
        put, entry_key, location_value = batch.put, ENTRY_KEY.pack, LOCATION.pack
        for ledger_id, entry_id, location in entries:
            put(entry_key(ENTRY_TAG, ledger_id, entry_id), location_value(*location))
        for ledger_id, record in ledgers:
            put(LEDGER_KEY.pack(_LEDGER_TAG, ledger_id), _pack_ledger(record))
        for ledger_id, deletion in deletions:
            batch.delete(LEDGER_KEY.pack(_LEDGER_TAG, ledger_id))
            put(LEDGER_KEY.pack(_DELETED_TAG, ledger_id), _pack_deleted(deletion, cleared=False))
        put(_END, _POSITION.pack(*end))
        batch.write()

    def ledger(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """Return what is known of a ledger, None if there is none."""
        value = self._store.get(LEDGER_KEY.pack(_LEDGER_TAG, ledger_id))
        return None if value is None else _unpack_ledger(value)

    def ledgers(self) -> Iterator[tuple[LedgerId, LedgerRecord]]:
        """Yield every ledger, ascending."""
        for key, value in self._store.scan(_LEDGER_TAG, after(_LEDGER_TAG)):
            yield LedgerId(LEDGER_KEY.unpack(key)[1]), _unpack_ledger(value)

    def move(self, places: Sequence[EntryPlace], sources: Collection[int]) -> int:
        """Let entries be found in copies of log files; return how many were.

        An entry moves only if it is in one of the `sources` still: meanwhile it may have been
        written again, or deleted.
        """
        batch = self._store.batch()
        moved = 0
        for ledger_id, entry_id, place in places:
            known = self.places.location(ledger_id, entry_id)
            if known is not None and known.number in sources:
                batch.put(ENTRY_KEY.pack(ENTRY_TAG, ledger_id, entry_id), LOCATION.pack(*place))
                moved += 1
        batch.write()
        return moved

    def deletions(self) -> Iterator[tuple[LedgerId, Deletion, bool]]:
        """Yield the ledgers deleted and not forgotten, and whether their entries are gone."""
        for key, value in self._store.scan(_DELETED_TAG, after(_DELETED_TAG)):
            fenced, cleared, time_ms = _DELETED.unpack(value)
            yield LedgerId(LEDGER_KEY.unpack(key)[1]), Deletion(fenced, time_ms), cleared

    def clear_entries(self, ledger_id: LedgerId, count_max: int) -> bool:
        """Remove some entries of a deleted ledger; return whether there may be more."""
        start = LEDGER_KEY.pack(ENTRY_TAG, ledger_id)
        keys = list(islice(self._store.keys(start, start + BEHIND_ENTRIES), count_max))
        batch = self._store.batch()
        for key in keys:
            batch.delete(key)
        batch.write()
        return len(keys) == count_max

    def settle_deletion(self, ledger_id: LedgerId, deletion: Deletion | None) -> None:
        """The entries of a deleted ledger are gone; `deletion` is what is to be remembered."""
        batch = self._store.batch()
        key = LEDGER_KEY.pack(_DELETED_TAG, ledger_id)
        if deletion is None:
            batch.delete(key)
        else:
            batch.put(key, _pack_deleted(deletion, cleared=True))
        batch.write()

    def tally(self, number: int) -> Tally | None:
        """Return the tally of a log file, None if there is none."""
        value = self._store.get(_TALLY_KEY.pack(_TALLY_TAG, number))
        try:
            return None if value is None else decode_tally(value)
        except struct.error as error:
            raise CorruptIndex(f"tally of file {number}: {error}") from error

    def set_tallies(self, tallies: Sequence[tuple[int, Tally | None]]) -> None:
        """Replace, or remove, the tallies of log files."""
        batch = self._store.batch()
        for number, tally in tallies:
            key = _TALLY_KEY.pack(_TALLY_TAG, number)
            if tally is None:
                batch.delete(key)
            else:
                batch.put(key, tally.encode())
        batch.write()

    def end(self) -> LogPosition | None:
        """Return the end of the log that the newest write brought, None before the first.

        Writes follow syncs, so the log was durable up to here. Writes before it may be missing
        after a power loss.
        """
        value = self._store.get(_END)
        return None if value is None else LogPosition(*_POSITION.unpack(value))


IndexFactory = Callable[[bool], Index]
"""Opens the index; with True it begins empty. Raises CorruptIndex when it cannot be opened."""


def _pack_ledger(record: LedgerRecord) -> bytes:
    head = _LEDGER.pack(record.fenced, len(record.master_key))
    return head + record.master_key + (record.explicit_lac or b"")


def _unpack_ledger(value: bytes) -> LedgerRecord:
    if len(value) < _LEDGER.size:
        raise CorruptIndex(f"a ledger has {len(value)} bytes")
    fenced, key_size = _LEDGER.unpack_from(value)
    rest = value[_LEDGER.size :]
    return LedgerRecord(rest[:key_size], fenced, rest[key_size:] or None)


def _pack_deleted(deletion: Deletion, *, cleared: bool) -> bytes:
    return _DELETED.pack(deletion.fenced, cleared, deletion.time_ms)
