"""Sparse indexes of a ledger, by offset and by timestamp.

With them most searches (`client/log/offset_search.py`) read nothing, or one short run of entries:

    offset index      (first offset of an entry) -> entry
    timestamp index   (largest timestamp before an entry) -> entry

Producers' timestamps are not monotonic, hence the running maximum: the first batch that reaches a
timestamp cannot be before the last position whose running maximum is still below it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from client.ids import EntryId

POINT_COUNT_MAX: Final = 16_384


class SparseIndex:
    """Sorted keys with their entries, thinned out when there are too many of them.

    Keys never decrease with the entry id. Memory: 16 bytes per position.
    """

    __slots__ = ("_entries", "_keys", "_point_count_max")

    def __init__(self, point_count_max: int = POINT_COUNT_MAX) -> None:
        self._point_count_max = point_count_max
        self._keys = array("q")
        self._entries = array("q")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int, entry_id: EntryId) -> None:
        """Add a position. Of several entries with the same key the last one is kept."""
        at = bisect_right(self._keys, key)
        if at and self._keys[at - 1] == key:
            self._entries[at - 1] = max(self._entries[at - 1], entry_id)
            return
        if at == len(self._keys):
            self._keys.append(key)
            self._entries.append(entry_id)
        else:
            self._keys.insert(at, key)
            self._entries.insert(at, entry_id)
        if len(self._keys) > self._point_count_max:
            del self._keys[1::2]
            del self._entries[1::2]

    def at(self, key: int) -> EntryId | None:
        """Return the last known entry with exactly this key."""
        at = bisect_right(self._keys, key)
        return EntryId(self._entries[at - 1]) if at and self._keys[at - 1] == key else None

    def at_or_before(self, key: int) -> EntryId | None:
        """Return the last known entry whose key is at most `key`."""
        at = bisect_right(self._keys, key)
        return EntryId(self._entries[at - 1]) if at else None

    def after(self, key: int) -> EntryId | None:
        """Return the first known entry whose key is above `key`."""
        at = bisect_right(self._keys, key)
        return EntryId(self._entries[at]) if at < len(self._entries) else None
