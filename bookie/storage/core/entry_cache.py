"""Recently added entries, in memory: what makes an entry readable before it is in the index.

An entry is put here when it is accepted, in log order. It must stay until the index knows its
location (`indexed_to`), and stays longer as long as there is room, oldest out first. So the size
is bounded by `bytes_max` plus what is not indexed yet, which the storage bounds by back-pressure.

Small entries are copied, and what is kept beside them is plain tuples of numbers: then there is
nothing here that the collector of reference cycles has to look at, of perhaps hundreds of thousands
(`client/node/process.py`), and no entry keeps the whole of what was received with it.

Who looks for an entry elsewhere says so (`look_for`), and hears in the end whether it has been here
and left since (`stop_looking`): then it is where he looked, and may have come there after that.

An entry may be written again while its first copy is durable but not indexed yet: a recovery does
that. The first copy is kept below the second one until the index knows it, for the second may be
lost on a full disk, and then only the cache can say that the entry is there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import Final

from bookie.storage.core.append_log import Location, LogPosition
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import Buffer

ENTRY_OVERHEAD_BYTES: Final = 500
"""About what Python needs to hold one entry, beside its own bytes."""

_COPIED_BYTES_MAX: Final = 4096
"""Larger entries stay where they were received: there are few of them in the same room."""

_Copy = tuple[int, int, Buffer, "_Copy | None"]
"""One accepted copy of an entry: number of its log file, position in it, its bytes, and the copy
that it stands for while the index does not know that one."""


def _entry_bytes(copy: _Copy) -> int:
    """Return the size of a copy and of all below it."""
    _, _, entry, older = copy
    return len(entry) + (_entry_bytes(older) if older is not None else 0)


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
        self._entries: OrderedDict[tuple[LedgerId, EntryId], _Copy] = OrderedDict()
        self._indexed_to = indexed_to
        self._looked_for: dict[tuple[LedgerId, EntryId], tuple[int, int]] = {}
        """What is looked for elsewhere: how many look for it, and how often it has left since."""
        self.entry_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(
        self, ledger_id: LedgerId, entry_id: EntryId, location: Location, entry: Buffer
    ) -> None:
        """Remember an accepted entry; from now on it is read instead of an older copy."""
        key = (ledger_id, entry_id)
        older = self._entries.pop(key, None)
        if older is not None and self._is_indexed(older):
            self.entry_bytes -= _entry_bytes(older)
            older = None
        if len(entry) <= _COPIED_BYTES_MAX:
            entry = bytes(entry)
        number, position, _ = location
        self._entries[key] = (number, position, entry, older)
        self.entry_bytes += len(entry)
        self._evict()

    def get(self, ledger_id: LedgerId, entry_id: EntryId) -> Buffer | None:
        """Return the entry if it is here."""
        found = self._entries.get((ledger_id, entry_id))
        return None if found is None else found[2]

    def look_for(self, ledger_id: LedgerId, entry_id: EntryId) -> int:
        """Somebody looks for an entry that is not here; return what to give to `stop_looking`."""
        key = (ledger_id, entry_id)
        lookers, departures = self._looked_for.get(key, (0, 0))
        self._looked_for[key] = lookers + 1, departures
        return departures

    def stop_looking(self, ledger_id: LedgerId, entry_id: EntryId, since: int) -> bool:
        """Somebody has looked. Return whether the entry has left since he began."""
        key = (ledger_id, entry_id)
        lookers, departures = self._looked_for[key]
        if lookers == 1:
            del self._looked_for[key]
        else:
            self._looked_for[key] = lookers - 1, departures
        return departures != since

    def all_keys(self) -> list[tuple[LedgerId, EntryId]]:
        """Return what is here: ten milliseconds for a million."""
        return list(self._entries)

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        """Return the entry ids of one ledger that are here. Takes time with everything held."""
        return [entry for ledger, entry in self._entries if ledger == ledger_id]

    def indexed_to(self, end: LogPosition) -> None:
        """The index knows everything before `end`: entries up to there may be dropped."""
        self._indexed_to = end
        self._evict()

    def drop_lost(self, added: Sequence[tuple[LedgerId, EntryId, Location]]) -> None:
        """Forget a group, in log order, whose write failed; the newest lost group comes first.

        What an entry was before it is that again.
        """
        for ledger_id, entry_id, location in reversed(added):
            key = (ledger_id, entry_id)
            found = self._entries.get(key)
            if found is None or found[:2] != location[:2]:
                continue
            _, _, entry, older = self._entries.pop(key)
            self.entry_bytes -= len(entry)
            if older is not None:
                # Out of order now: it leaves late, which is what the cache may always do.
                self._entries[key] = older

    def forget_ledgers(self, ledger_ids: Container[LedgerId]) -> None:
        """Drop the entries of ledgers that are gone. Takes time with everything held."""
        for key in [key for key in self._entries if key[0] in ledger_ids]:
            self.entry_bytes -= _entry_bytes(self._entries.pop(key))

    def _is_indexed(self, copy: _Copy) -> bool:
        return copy[:2] < self._indexed_to

    def _evict(self) -> None:
        entries, overhead, bytes_max = self._entries, self._overhead_bytes, self._bytes_max
        while entries and self.entry_bytes + overhead * len(entries) > bytes_max:
            key, copy = next(iter(entries.items()))
            if not self._is_indexed(copy):
                return
            del entries[key]
            self.entry_bytes -= _entry_bytes(copy)
            if key in self._looked_for:
                lookers, departures = self._looked_for[key]
                self._looked_for[key] = lookers, departures + 1
