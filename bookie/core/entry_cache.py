"""Recently added entries, in memory: what makes an entry readable before it is in the index.

An entry is put here when it is accepted, in log order. It must stay until the index knows its
location (`indexed_to`), and stays longer as long as there is room, oldest out first. So the size
is bounded by `bytes_max` plus what is not indexed yet, which the storage bounds by
back-pressure. This file is the only home of that cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable
from typing import Final

from bookie.core.append_log import LogPosition
from bookie.core.log_format import Location
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import Buffer

ENTRY_OVERHEAD_BYTES: Final = 500
"""About what Python needs to hold one entry, beside its own bytes."""


class EntryCache:
    """Accepted entries by (ledger id, entry id), ordered by their place in the log."""

    def __init__(
        self,
        bytes_max: int,
        indexed_to: LogPosition,
        *,
        overhead_bytes: int = ENTRY_OVERHEAD_BYTES,
    ) -> None:
        """`overhead_bytes` counts for the limit with each entry."""
        self._bytes_max = bytes_max
        self._overhead_bytes = overhead_bytes
        # Not a dict: finding the oldest key of one means stepping over all that were removed.
        self._entries: OrderedDict[tuple[LedgerId, EntryId], tuple[Location, Buffer]] = (
            OrderedDict()
        )
        self._indexed_to = indexed_to
        self.entry_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(
        self, ledger_id: LedgerId, entry_id: EntryId, location: Location, entry: Buffer
    ) -> None:
        """Remember an accepted entry; an older copy of it is replaced."""
        key = (ledger_id, entry_id)
        old = self._entries.pop(key, None)
        if old is not None:
            self.entry_bytes -= len(old[1])
        self._entries[key] = (location, entry)
        self.entry_bytes += len(entry)
        self._evict()

    def get(self, ledger_id: LedgerId, entry_id: EntryId) -> Buffer | None:
        """Return the entry if it is here."""
        found = self._entries.get((ledger_id, entry_id))
        return None if found is None else found[1]

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        """Return the entry ids of one ledger that are here. Takes time with everything held."""
        return [entry for ledger, entry in self._entries if ledger == ledger_id]

    def indexed_to(self, end: LogPosition) -> None:
        """The index knows everything before `end`: entries up to there may be dropped."""
        self._indexed_to = end
        self._evict()

    def drop_lost(self, added: Iterable[tuple[LedgerId, EntryId, Location]]) -> None:
        """Forget entries whose write failed, unless they were replaced since."""
        for ledger_id, entry_id, location in added:
            found = self._entries.get((ledger_id, entry_id))
            if found is not None and found[0] is location:
                del self._entries[ledger_id, entry_id]
                self.entry_bytes -= len(found[1])

    def forget_ledgers(self, ledger_ids: Container[LedgerId]) -> None:
        """Drop the entries of ledgers that are gone. Takes time with everything held."""
        for key in [key for key in self._entries if key[0] in ledger_ids]:
            self.entry_bytes -= len(self._entries.pop(key)[1])

    def _evict(self) -> None:
        overhead = self._overhead_bytes
        while self._entries and self.entry_bytes + overhead * len(self._entries) > self._bytes_max:
            key = next(iter(self._entries))
            location, entry = self._entries[key]
            if (location.number, location.position) >= self._indexed_to:
                return
            del self._entries[key]
            self.entry_bytes -= len(entry)
