"""Reading entries back from the log, on a reader thread.

This file is the only home of the rule that a wrong byte is never an absent entry: if the index
has a location and the log has anything but that very entry there, the answer is CorruptRecord.
"""

from __future__ import annotations

from typing import NamedTuple

from bookie.core.log_format import (
    RECORD_HEADER_BYTES,
    Kind,
    Location,
    file_name,
    ids_of,
    unpack_record,
)
from bookie.disk import Disk
from bookie.errors import CorruptRecord, StorageError
from bookie.index import Index
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.entry import peek_lac

Found = memoryview | StorageError | None
"""An entry, or why it cannot be read, or None: the index has no such entry."""


class Tail(NamedTuple):
    """The end of a ledger as the log has it."""

    last_entry: EntryId
    lac: EntryId


class EntryReader:
    """Looks entries up in index and log. Every method blocks."""

    def __init__(self, disk: Disk, index: Index, seed: int) -> None:
        self._disk = disk
        self._index = index
        self._seed = seed

    def read_many(self, wanted: list[tuple[LedgerId, EntryId]]) -> list[Found]:
        """Return what was found for each of `wanted`, in order. Raises nothing."""
        return [self._try_read(ledger_id, entry_id) for ledger_id, entry_id in wanted]

    def _try_read(self, ledger_id: LedgerId, entry_id: EntryId) -> Found:
        try:
            return self.read(ledger_id, entry_id)
        except StorageError as error:
            return error

    def read(self, ledger_id: LedgerId, entry_id: EntryId) -> memoryview | None:
        """Return an entry, None if the index has none. Raises CorruptRecord, CorruptIndex."""
        location = self._index.location(ledger_id, entry_id)
        while location is not None:
            try:
                return self._read_at(location, (ledger_id, entry_id))
            except CorruptRecord:
                # Reclaim may have moved the entry after the index was asked.
                newer = self._index.location(ledger_id, entry_id)
                if newer == location:
                    raise
                location = newer
        return None

    def _read_at(self, location: Location, ids: tuple[LedgerId, EntryId]) -> memoryview:
        number, position, size = location
        try:
            data = self._disk.read(file_name(number), position, RECORD_HEADER_BYTES + size)
        except OSError as error:
            raise CorruptRecord(number, position, f"cannot read: {error}") from error
        return self._verify(data, location, ids)

    def _verify(self, data: bytes, location: Location, ids: tuple[LedgerId, EntryId]) -> memoryview:
        number, position, size = location
        record = unpack_record(memoryview(data), self._seed)
        if record is None:
            raise CorruptRecord(number, position, f"no valid record, wanted entry {ids}")
        if (record.kind, record.position, len(record.body)) != (Kind.ENTRY, position, size):
            raise CorruptRecord(number, position, f"another record, wanted entry {ids}")
        if ids_of(record.body) != ids:
            raise CorruptRecord(number, position, f"another entry, wanted {ids}")
        return record.body

    def tail(self, ledger_id: LedgerId) -> Tail:
        """Return the last entry of a ledger and the last add confirmed it carries.

        Raises CorruptRecord, CorruptIndex.
        """
        last_entry = self._index.last_entry(ledger_id)
        if last_entry is None:
            return Tail(NO_ENTRY, NO_ENTRY)
        entry = self.read(ledger_id, last_entry)
        assert entry is not None, "the index just had it"
        return Tail(last_entry, peek_lac(entry))
