"""The index: from (ledger, entry) to a place in the log, and what is known of each ledger.

The index is a cache of the log, rebuilt from it when it is lost. Its writes are not synced: a
start replays the log from the last checkpoint, and a checkpoint is taken only after `flush`.
`Index` is the interface (the simulator has its own implementation behind it); `LevelIndex` keeps
it in LevelDB. This file is the only importer of plyvel and the only home of index keys:

    "e" ledger 8 entry 8   ->  file number 4 · position 4 · size 4
    "l" ledger 8           ->  fenced 1 · key length 1 · master key · explicit LAC packet
    "z"                    ->  file number 4 · position 4: the index reflects the log up to here
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import plyvel

from bookie.core.append_log import LogPosition
from bookie.core.ledger_guard import Ledger
from bookie.core.log_format import Location
from bookie.errors import CorruptIndex
from client.ids import EntryId, LedgerId


class LedgerRecord(NamedTuple):
    """What the index keeps about a ledger."""

    master_key: bytes
    fenced: bool
    explicit_lac: bytes | None


def record_of(ledger: Ledger) -> LedgerRecord:
    """Return what the index keeps about `ledger`."""
    return LedgerRecord(ledger.master_key, ledger.fenced, ledger.explicit_lac)


class Index(Protocol):
    """Synchronous: called at start, or inside jobs that `disk.py` runs off the event loop.

    All methods raise CorruptIndex when the index itself is damaged.
    """

    def write(
        self,
        entries: Sequence[tuple[LedgerId, EntryId, Location]],
        ledgers: Sequence[tuple[LedgerId, LedgerRecord]],
        end: LogPosition,
    ) -> None:
        """Apply changes in one atomic step; later items of a list win. `end`: see `end()`."""
        ...

    def location(self, ledger_id: LedgerId, entry_id: EntryId) -> Location | None:
        """Return where an entry is, None if the index has none."""
        ...

    def last_entry(self, ledger_id: LedgerId) -> EntryId | None:
        """Return the highest entry id of a ledger, None if there is no entry."""
        ...

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        """Return all entry ids of a ledger, ascending."""
        ...

    def ledgers(self) -> Iterator[tuple[LedgerId, LedgerRecord]]:
        """Yield every ledger, ascending."""
        ...

    def end(self) -> LogPosition | None:
        """Return the end of the log that the newest write brought, None before the first.

        Writes follow syncs, so the log was durable up to here. Writes before it may be missing
        after a power loss.
        """
        ...

    def flush(self) -> None:
        """Return when everything written so far survives a power loss."""
        ...

    def close(self) -> None:
        """Release the index."""
        ...


IndexFactory = Callable[[bool], Index]
"""Opens the index; with True it begins empty. Raises CorruptIndex when it cannot be opened."""

_ENTRY_KEY: Final = struct.Struct(">cqq")
_LEDGER_KEY: Final = struct.Struct(">cq")
_LOCATION: Final = struct.Struct(">III")
_POSITION: Final = struct.Struct(">II")
_LEDGER: Final = struct.Struct(">?B")
_ENTRY: Final = b"e"
_LEDGER_TAG: Final = b"l"
_END: Final = b"z"
_ENTRY_ID_MAX: Final = EntryId(2**63 - 1)


class LevelIndex:
    """`Index` over LevelDB."""

    def __init__(
        self, path: Path, *, wipe: bool, write_buffer_bytes: int, block_cache_bytes: int
    ) -> None:
        """Open or create. Raises CorruptIndex."""
        if wipe and path.exists():
            shutil.rmtree(path)
        try:
            self._db = plyvel.DB(
                str(path),
                create_if_missing=True,
                paranoid_checks=True,  # a log with holes must fail, not be skipped over
                write_buffer_size=write_buffer_bytes,
                lru_cache_size=block_cache_bytes,
                bloom_filter_bits=10,
            )
        except (plyvel.Error, OSError) as error:
            raise CorruptIndex(f"cannot open {path}: {error}") from error

    def write(
        self,
        entries: Sequence[tuple[LedgerId, EntryId, Location]],
        ledgers: Sequence[tuple[LedgerId, LedgerRecord]],
        end: LogPosition,
    ) -> None:
        batch = self._db.write_batch()
        entry_key, location_value = _ENTRY_KEY.pack, _LOCATION.pack
        for ledger_id, entry_id, location in entries:
            batch.put(entry_key(_ENTRY, ledger_id, entry_id), location_value(*location))
        for ledger_id, record in ledgers:
            batch.put(_LEDGER_KEY.pack(_LEDGER_TAG, ledger_id), _pack_ledger(record))
        batch.put(_END, _POSITION.pack(*end))
        try:
            batch.write()
        except (plyvel.Error, OSError) as error:
            raise CorruptIndex(f"cannot write: {error}") from error

    def location(self, ledger_id: LedgerId, entry_id: EntryId) -> Location | None:
        value = self._get(_ENTRY_KEY.pack(_ENTRY, ledger_id, entry_id))
        return None if value is None else _unpack_location(value)

    def last_entry(self, ledger_id: LedgerId) -> EntryId | None:
        # By hand: plyvel's reverse iterator loses an only key that equals its start.
        highest = _ENTRY_KEY.pack(_ENTRY, ledger_id, _ENTRY_ID_MAX)
        try:
            with closing(self._db.raw_iterator(verify_checksums=True)) as cursor:
                cursor.seek(highest)
                if not cursor.valid():
                    cursor.seek_to_last()
                elif cursor.key() != highest:
                    cursor.prev()
                if not cursor.valid():
                    return None
                key: bytes = cursor.key()
        except plyvel.Error as error:
            raise CorruptIndex(str(error)) from error
        if key[:9] != highest[:9] or len(key) != _ENTRY_KEY.size:
            return None
        return EntryId(_ENTRY_KEY.unpack(key)[2])

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        try:
            keys = self._db.iterator(
                start=_ENTRY_KEY.pack(_ENTRY, ledger_id, 0),
                stop=_ENTRY_KEY.pack(_ENTRY, ledger_id, _ENTRY_ID_MAX),
                include_stop=True,
                include_value=False,
                verify_checksums=True,
            )
            return [EntryId(_ENTRY_KEY.unpack(key)[2]) for key in keys]
        except (plyvel.Error, struct.error) as error:
            raise CorruptIndex(str(error)) from error

    def ledgers(self) -> Iterator[tuple[LedgerId, LedgerRecord]]:
        try:
            for key, value in self._db.iterator(prefix=_LEDGER_TAG, verify_checksums=True):
                yield LedgerId(_LEDGER_KEY.unpack(key)[1]), _unpack_ledger(value)
        except (plyvel.Error, struct.error) as error:
            raise CorruptIndex(str(error)) from error

    def end(self) -> LogPosition | None:
        value = self._get(_END)
        return None if value is None else LogPosition(*_POSITION.unpack(value))

    def flush(self) -> None:
        # Compacting a range without keys writes the memory table to a synced file and nothing
        # more. A synced write would not do: LevelDB may have moved on to another write-ahead
        # log without syncing the one before.
        try:
            self._db.compact_range(start=b"\xff", stop=b"\xff\xff")
        except (plyvel.Error, OSError) as error:
            raise CorruptIndex(f"cannot flush: {error}") from error

    def close(self) -> None:
        self._db.close()

    def _get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key, verify_checksums=True)
        except (plyvel.Error, OSError) as error:
            raise CorruptIndex(str(error)) from error
        return value


def _unpack_location(value: bytes) -> Location:
    if len(value) != _LOCATION.size:
        raise CorruptIndex(f"a location has {len(value)} bytes")
    return Location(*_LOCATION.unpack(value))


def _pack_ledger(record: LedgerRecord) -> bytes:
    head = _LEDGER.pack(record.fenced, len(record.master_key))
    return head + record.master_key + (record.explicit_lac or b"")


def _unpack_ledger(value: bytes) -> LedgerRecord:
    fenced, key_size = _LEDGER.unpack_from(value)
    rest = value[_LEDGER.size :]
    return LedgerRecord(rest[:key_size], fenced, rest[key_size:] or None)
