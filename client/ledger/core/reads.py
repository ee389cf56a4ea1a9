"""Reading one entry: which replica is asked first, who is next, and what a failure means.

Covers the rules of plain reads, by the names that PROTOCOL.md and the tests use:

- READ-ORDER  the write set in its own order (so that reads spread over the bookies as entries
              do), but those in good health first: then read-only ones, slow ones, those that are
              not registered, and last those that could not be reached. Among the good ones the
              local rack comes first.
- READ-NEXT   any failure of a replica, a wrong digest or wrong ids included, moves on to the next.
- READ-SPECULATE a replica that takes long is not given up, but the next is asked beside it; the
              wait doubles with each. The first valid copy wins.
- READ-NONE   NoSuchEntry is the verdict only when every replica said so: a single "no such
              entry" below LAC means a broken replica, never a missing entry.
- READ-ERROR  otherwise the first error that tells more than "unreachable" is reported.

Sources: `PendingReadOp`, `DefaultSpeculativeRequestExecutionPolicy`,
`RackawareEnsemblePlacementPolicyImpl.reorderReadSequence`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from client.errors import BookieUnavailable, LedgerError, NoSuchEntry, NoSuchLedger, ReadFailed
from client.ids import BookieId, EntryId


class Rank(enum.IntEnum):
    """How readily a bookie is asked; lower first."""

    LOCAL = 0
    GOOD = 1
    READ_ONLY = 2
    SLOW = 3
    UNREGISTERED = 4
    UNREACHABLE = 5


class Speculation(NamedTuple):
    """When a further replica is asked beside those that have not answered. Times in seconds."""

    wait_s: float
    """First wait; 0: never ask beside."""
    wait_s_max: float


def read_order(
    ensemble: Sequence[BookieId], write_set: Sequence[int], rank: Callable[[BookieId], int]
) -> list[BookieId]:
    """Return the bookies that hold an entry, in the order to ask them."""
    bookies = [ensemble[index] for index in write_set]
    return sorted(bookies, key=rank)


class EntryRead:
    """One entry being read, replica after replica. The first of `order` was asked at `now_s`."""

    __slots__ = ("_asked", "_errors", "_order", "_speculation", "_wait_s", "due_s", "entry_id")

    def __init__(
        self, entry_id: EntryId, order: Sequence[BookieId], speculation: Speculation, now_s: float
    ) -> None:
        self.entry_id = entry_id
        self._order = order
        self._speculation = speculation
        self._asked = 1
        self._errors: dict[BookieId, LedgerError] = {}
        self._wait_s = speculation.wait_s
        self.due_s = math.inf
        """When to call `on_silence`."""
        self._set_due(now_s)

    @property
    def first(self) -> BookieId:
        """The bookie to ask first."""
        return self._order[0]

    @property
    def silent(self) -> list[BookieId]:
        """Bookies that were asked and have not answered."""
        return [bookie for bookie in self._order[: self._asked] if bookie not in self._errors]

    @property
    def has_failed(self) -> bool:
        """Whether every replica failed (see `verdict`)."""
        return len(self._errors) == len(self._order)

    def on_failed(self, bookie: BookieId, error: LedgerError, now_s: float) -> BookieId | None:
        """A replica failed; return the next bookie to ask, None if all were asked."""
        self._errors[bookie] = error
        return self._ask_next(now_s)

    def on_silence(self, now_s: float) -> BookieId | None:
        """The wait is over; return the bookie to ask beside, None if all were asked."""
        self._wait_s = min(self._wait_s * 2, self._speculation.wait_s_max)
        return self._ask_next(now_s)

    def verdict(self) -> LedgerError:
        """Return what to report once every replica failed."""
        errors = list(self._errors.values())
        missing = [e for e in errors if isinstance(e, (NoSuchEntry, NoSuchLedger))]
        if len(missing) == len(errors):
            return NoSuchEntry(f"no replica has entry {self.entry_id}")
        telling = [
            e for e in errors if not isinstance(e, (NoSuchEntry, NoSuchLedger, BookieUnavailable))
        ]
        if telling:
            return telling[0]
        return ReadFailed(f"no replica of entry {self.entry_id} can be reached")

    def _ask_next(self, now_s: float) -> BookieId | None:
        if self._asked == len(self._order):
            self.due_s = math.inf
            return None
        self._asked += 1
        self._set_due(now_s)
        return self._order[self._asked - 1]

    def _set_due(self, now_s: float) -> None:
        if self._wait_s and self._asked < len(self._order):
            self.due_s = now_s + self._wait_s
        else:
            self.due_s = math.inf
