"""Where entries are in the log, as the index has it: what reader threads look up.

    "e" ledger 8 entry 8   ->  file number 4 · position 4 · size 4

Only reads: `index.py` writes these keys, together with all others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from bookie.errors import CorruptIndex
from bookie.storage.core.log_format import Location
from bookie.storage.index.key_values import KeyValues
from client.fast_tuple import new_tuple
from client.ids import EntryId, LedgerId

EntryPlace = tuple[LedgerId, EntryId, Location]
"""An entry and where in the log it is."""

ENTRY_TAG: Final = b"e"
ENTRY_KEY: Final = struct.Struct(">cqq")
LOCATION: Final = struct.Struct(">III")
LEDGER_KEY: Final = struct.Struct(">cq")
"""A tag and a ledger: with `ENTRY_TAG` the prefix of the ledger's entries."""
BEHIND_ENTRIES: Final = b"\xff"
"""Behind a ledger's prefix: greater than every entry id, whose first bit is zero."""


class EntryPlaces:
    """Entries by ledger and entry id. Any thread may ask.

    All methods raise CorruptIndex when the index itself is damaged.
    """

    def __init__(self, store: KeyValues) -> None:
        self._store = store

    def location(self, ledger_id: LedgerId, entry_id: EntryId) -> Location | None:
        """Return where an entry is, None if the index has none."""
        value = self._store.get(ENTRY_KEY.pack(ENTRY_TAG, ledger_id, entry_id))
        return None if value is None else _unpack_location(value)

    def locations(
        self, ledger_id: LedgerId, first: EntryId, last: EntryId
    ) -> dict[EntryId, Location]:
        """Return where the entries `first`..`last` are, as far as the index has them.

        For neighbours that costs a fraction of looking them up one by one.
        """
        start = ENTRY_KEY.pack(ENTRY_TAG, ledger_id, first)
        stop = ENTRY_KEY.pack(ENTRY_TAG, ledger_id, last) + BEHIND_ENTRIES
        try:
            return {
                EntryId(ENTRY_KEY.unpack(key)[2]): _unpack_location(value)
                for key, value in self._store.scan(start, stop)
            }
        except struct.error as error:
            raise CorruptIndex(str(error)) from error

    def run(
        self, ledger_id: LedgerId, first: EntryId, count_max: int, bytes_max: int
    ) -> list[Location]:
        """Return where the entries are that follow each other from `first` on.

        At most `count_max` of them, and no more than fit into `bytes_max`, but the first one
        whatever its size. None: the index does not have `first`.
        """
        start = ENTRY_KEY.pack(ENTRY_TAG, ledger_id, first)
        stop = LEDGER_KEY.pack(ENTRY_TAG, ledger_id) + BEHIND_ENTRIES
        found: list[Location] = []
        try:
            for following, (key, value) in enumerate(self._store.scan(start, stop), first):
                location = _unpack_location(value)
                bytes_max -= location.size
                if ENTRY_KEY.unpack(key)[2] != following or (found and bytes_max < 0):
                    break
                found.append(location)
                if len(found) == count_max:
                    break
        except struct.error as error:
            raise CorruptIndex(str(error)) from error
        return found

    def last_entry(self, ledger_id: LedgerId) -> EntryId | None:
        """Return the highest entry id of a ledger, None if there is no entry."""
        start = LEDGER_KEY.pack(ENTRY_TAG, ledger_id)
        key = self._store.last_key(start, start + BEHIND_ENTRIES)
        return None if key is None else EntryId(ENTRY_KEY.unpack(key)[2])

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        """Return all entry ids of a ledger, ascending."""
        start = LEDGER_KEY.pack(ENTRY_TAG, ledger_id)
        keys = self._store.keys(start, start + BEHIND_ENTRIES)
        try:
            return [EntryId(ENTRY_KEY.unpack(key)[2]) for key in keys]
        except struct.error as error:
            raise CorruptIndex(str(error)) from error

    def all(self) -> Iterator[EntryPlace]:
        """Yield every entry and its place, ascending."""
        for key, value in self._store.scan(ENTRY_TAG, after(ENTRY_TAG)):
            _, ledger_id, entry_id = ENTRY_KEY.unpack(key)
            yield LedgerId(ledger_id), EntryId(entry_id), _unpack_location(value)


def after(tag: bytes) -> bytes:
    """Return the first key behind all that begin with `tag`."""
    return bytes([tag[0] + 1])


def _unpack_location(value: bytes) -> Location:
    if len(value) != LOCATION.size:
        raise CorruptIndex(f"a location has {len(value)} bytes")
    return new_tuple(Location, LOCATION.unpack(value))
