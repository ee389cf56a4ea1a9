"""What is remembered of a bookie's failures, and for how long it counts against the bookie.

Four memories:

- failed lately: it failed a ledger's adds; no new entries go there for a short while, so that two
  dead bookies do not take turns in one ensemble until their registrations expire;
- displaced: it lost places in ledgers for being slow (rule CHANGE-SLOW); others are chosen before
  it, and only this many bookies may be in that state at a time, or the writers of a cluster that is
  slow everywhere would flee from one bookie to the next;
- slow lately: a read had to be asked of somebody else; reads ask it after others (READ-ORDER);
- quarantine (rule QUARANTINE): too many errors within one interval; it is not chosen for a long
  while. A bookie with a dying disk answers pings and keeps its registration, and would be chosen
  again and again.

Whoever is held against is passed over, never shut out: when there is nobody else it is taken.

Sources: Apache BookKeeper `BookieWatcherImpl` (quarantine), `bookieFailureHistoryExpirationMS`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from client.errors import (
    DataUnknown,
    DigestMismatch,
    LedgerError,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
)
from client.ids import BookieId

_ANSWERS: Final = (
    NoSuchEntry,
    NoSuchLedger,
    LedgerFenced,
    UnauthorizedAccess,
    DataUnknown,
)
"""What a healthy bookie may say."""


class HealthLimits(NamedTuple):
    """How long what is remembered. Times in seconds."""

    failed_pause_s: float = 10.0
    slow_memory_s: float = 60.0
    slow_bookies_max: int = 1
    """Bookies that may have lost places within `slow_memory_s`."""
    quarantine_errors_max: int = 0
    """Errors within one interval that are still tolerated; 0: there is no quarantine."""
    quarantine_interval_s: float = 60.0
    quarantine_s: float = 1800.0


class _Errors:
    """Errors of one bookie within the present interval."""

    __slots__ = ("count", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.count = 0


class BookieHealth:
    """The memory of one client."""

    def __init__(self, limits: HealthLimits) -> None:
        self._limits = limits
        self.has_quarantine = True
        """Whether quarantines count; an operator may switch that off."""
        self._failed_until_s: dict[BookieId, float] = {}
        self._slow_until_s: dict[BookieId, float] = {}
        self._displaced_until_s: dict[BookieId, float] = {}
        self._quarantined_until_s: dict[BookieId, float] = {}
        self._errors: dict[BookieId, _Errors] = {}

    def on_ledger_failed(self, bookie: BookieId, now_s: float) -> None:
        """An ensemble change is to replace it."""
        self._failed_until_s[bookie] = now_s + self._limits.failed_pause_s

    def on_slow(self, bookie: BookieId, now_s: float) -> None:
        """It did not answer a read in time, or could not serve it."""
        self._slow_until_s[bookie] = now_s + self._limits.slow_memory_s

    def may_lose_places(self, bookie: BookieId, now_s: float) -> bool:
        """It has stayed behind the others of a ledger; return whether it should be replaced there.

        From then on others are chosen before it. All writers may replace the same bookie.
        """
        displaced = {
            other: until_s for other, until_s in self._displaced_until_s.items() if until_s > now_s
        }
        if bookie in displaced or len(displaced) < self._limits.slow_bookies_max:
            displaced[bookie] = now_s + self._limits.slow_memory_s
        self._displaced_until_s = displaced
        return bookie in displaced

    def on_error(self, bookie: BookieId, error: LedgerError, now_s: float) -> bool:
        """It answered a request with an error; return whether it is in quarantine from now on."""
        limits = self._limits
        if not limits.quarantine_errors_max or isinstance(error, _ANSWERS):
            return False
        errors = self._errors.get(bookie)
        if errors is None or now_s - errors.since_s >= limits.quarantine_interval_s:
            errors = self._errors[bookie] = _Errors(now_s)
        errors.count += 1
        if errors.count <= limits.quarantine_errors_max:
            return False
        del self._errors[bookie]
        self._quarantined_until_s[bookie] = now_s + limits.quarantine_s
        return True

    def is_slow(self, bookie: BookieId, now_s: float) -> bool:
        """Whether reads should ask others first."""
        return self._slow_until_s.get(bookie, now_s) > now_s

    def is_passed_over(self, bookie: BookieId, now_s: float) -> bool:
        """Whether others should be chosen first."""
        if self._failed_until_s.get(bookie, now_s) > now_s:
            return True
        if self._displaced_until_s.get(bookie, now_s) > now_s:
            return True
        return self.has_quarantine and self._quarantined_until_s.get(bookie, now_s) > now_s


def is_bad_read(error: LedgerError) -> bool:
    """Whether a failed read says something about the bookie rather than about the entry."""
    return isinstance(error, DigestMismatch) or not isinstance(error, _ANSWERS)
