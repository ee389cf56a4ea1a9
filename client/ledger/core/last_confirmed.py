"""Finding the last confirmed entry by asking a whole ensemble.

Covers the quorum LAC read, used with fencing by recovery and without by readers of open ledgers.
Rule LAC-COVERAGE: it is over once every possible ack quorum of every write set has an answering
member. Then the highest LAC seen is at least the LAC that the last confirmed entry carried,
because one of the bookies that stored that entry has answered; and if the reads fenced, no further
entry can reach its ack quorum.

"No such entry" and "no such ledger" are answers; so is an entry with a wrong digest (the bookie
did fence, only its LAC is not to be trusted). Unreachable, timed out, damaged or "cannot say"
are not.

Sources: BookKeeper protocol text ("Closing a ledger as a reader"), `ReadLastConfirmedOp`.
"""

from __future__ import annotations

from client.errors import LedgerError
from client.ids import NO_ENTRY, EntryId
from client.ledger.core.schedule import Schedule


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
