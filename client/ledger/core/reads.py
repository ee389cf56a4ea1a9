"""What readers ask bookies: replicas of an entry one by one, an ensemble for its end, news of it.

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

The last confirmed entry is found by asking a whole ensemble (`LacQuorum`), with fencing by recovery
and without by readers of open ledgers. Rule LAC-COVERAGE: it is over once every possible ack quorum
of every write set has an answering member. Then the highest LAC seen is at least the LAC that the
last confirmed entry carried, because one of the bookies that stored that entry has answered; and if
the reads fenced, no further entry can reach its ack quorum.

"No such entry" and "no such ledger" are answers; so is an entry with a wrong digest (the bookie
did fence, only its LAC is not to be trusted). Unreachable, timed out, damaged or "cannot say"
are not.

Sources: BookKeeper protocol text ("Closing a ledger as a reader"), `ReadLastConfirmedOp`.

Rule TAIL-POLL (`LongPolls`): a reader that follows a ledger has at most one long poll parked at
each member of its last ensemble. All of them are asked, since which one hears of a new LAC first
depends on the entry that carries it, and any of them may be slow or suspended. A poll that was
answered with nothing new well before its time, or failed, is not repeated at once but after a
pause: a fenced ledger answers polls immediately, and a dead bookie fails them.

Source: Apache BookKeeper `ReadLastConfirmedAndEntryOp`, which asks one after the other instead.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from client.errors import BookieUnavailable, LedgerError, NoSuchEntry, NoSuchLedger, ReadFailed
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.ledger_metadata import Schedule


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


class LacQuorum:
    """Answers of one ensemble to "what is the last confirmed entry you know of"."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._known = 0
        self._errors: dict[int, LedgerError] = {}
        self.lac: EntryId = NO_ENTRY
        """Highest LAC seen so far."""

    def on_known(self, index: int, lac: EntryId = NO_ENTRY) -> None:
        """Member `index` answered; `lac` is what its last entry (or explicit LAC) carries."""
        self._known |= 1 << index
        self.lac = max(self.lac, lac)

    def on_unknown(self, index: int, error: LedgerError) -> None:
        """Member `index` could not say."""
        self._errors[index] = error

    @property
    def covered(self) -> bool:
        """Whether enough members answered."""
        return self._schedule.covered(self._known)

    @property
    def failure(self) -> LedgerError | None:
        """The first error, once everybody was heard and that was not enough."""
        heard = self._known.bit_count() + len(self._errors)
        if self.covered or heard < self._schedule.ensemble_size:
            return None
        return next(iter(self._errors.values()))


PAUSE_S: Final = 0.5
"""Pause after a poll that failed or was of no use."""


class LongPolls:
    """The polls of one follower. Times in seconds."""

    def __init__(self) -> None:
        self._parked: dict[BookieId, None] = {}
        self._not_before_s: dict[BookieId, float] = {}

    def due(self, ensemble: Sequence[BookieId], now_s: float) -> list[BookieId]:
        """Return the members to ask now; they count as asked from here on."""
        found = [
            bookie
            for bookie in ensemble
            if bookie not in self._parked and self._not_before_s.get(bookie, now_s) <= now_s
        ]
        self._parked.update(dict.fromkeys(found))
        return found

    def on_answer(self, bookie: BookieId, now_s: float, *, is_news: bool) -> None:
        """A poll is over; `is_news`: it told of a higher LAC, or waited its whole time."""
        self._parked.pop(bookie, None)
        self._not_before_s[bookie] = now_s if is_news else now_s + PAUSE_S

    def next_due_s(self, ensemble: Sequence[BookieId]) -> float:
        """Return when `due` will have somebody again, unless an answer comes first."""
        waiting = [self._not_before_s[b] for b in ensemble if b not in self._parked]
        return min(waiting, default=math.inf)
