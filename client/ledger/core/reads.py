"""Reading one entry: which replica is asked first, who is next, and what a failure means.

This file is the only home of the rules of plain reads, by the names that PROTOCOL.md and the
tests use:

- READ-ORDER  the write set in its own order (so that reads spread over the bookies as entries
              do), bookies that are known to be unreachable last.
- READ-NEXT   any failure of a replica, a wrong digest or wrong ids included, moves on to the next.
- READ-NONE   NoSuchEntry is the verdict only when every replica said so: a single "no such
              entry" below LAC means a broken replica, never a missing entry.
- READ-ERROR  otherwise the first error that tells more than "unreachable" is reported.

Sources: `PendingReadOp`, `LedgerEntryRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from client.errors import BookieUnavailable, LedgerError, NoSuchEntry, NoSuchLedger, ReadFailed
from client.ids import BookieId, EntryId


def read_order(
    ensemble: Sequence[BookieId],
    write_set: Sequence[int],
    is_unreachable: Callable[[BookieId], bool],
) -> list[BookieId]:
    """Return the bookies that hold an entry, in the order to ask them."""
    bookies = [ensemble[index] for index in write_set]
    return sorted(bookies, key=is_unreachable)


class EntryRead:
    """One entry being read, replica after replica."""

    __slots__ = ("_asked", "_errors", "_order", "entry_id")

    def __init__(self, entry_id: EntryId, order: Sequence[BookieId]) -> None:
        self.entry_id = entry_id
        self._order = order
        self._asked = 1
        self._errors: list[LedgerError] = []

    @property
    def first(self) -> BookieId:
        """The bookie to ask first."""
        return self._order[0]

    def on_failed(self, error: LedgerError) -> BookieId | None:
        """Return the next bookie to ask, None when every replica failed (see `verdict`)."""
        self._errors.append(error)
        if self._asked == len(self._order):
            return None
        self._asked += 1
        return self._order[self._asked - 1]

    def verdict(self) -> LedgerError:
        """Return what to report once every replica failed."""
        missing = [e for e in self._errors if isinstance(e, (NoSuchEntry, NoSuchLedger))]
        if len(missing) == len(self._errors):
            return NoSuchEntry(f"no replica has entry {self.entry_id}")
        telling = [
            e
            for e in self._errors
            if not isinstance(e, (NoSuchEntry, NoSuchLedger, BookieUnavailable))
        ]
        if telling:
            return telling[0]
        return ReadFailed(f"no replica of entry {self.entry_id} can be reached")
