"""When the auditor acts on lost bookies: at once, or after the time one of them gets to return.

This file is the only home of that decision. A bookie is lost when it has a cookie but is not
registered, whether or not anybody saw it alive (issue 4419). One newly lost bookie gets a delay,
so that restarting bookies one by one copies nothing; if it returns, nothing happened. A second
one lost meanwhile ends the wait. Whatever else happens while waiting does not (issue 3817).

Sources: Apache BookKeeper `Auditor`, `AuditorBookieCheckTask`.
"""

from __future__ import annotations

from collections.abc import Collection

from client.ids import BookieId


class LostBookies:
    """The account of one auditor."""

    def __init__(self) -> None:
        self._handled: frozenset[BookieId] = frozenset()
        """Lost, and every ledger of theirs is marked."""
        self._waiting_for: BookieId | None = None
        self._lost_at_s = 0.0
        self._delay_s = 0.0

    @property
    def due_s(self) -> float | None:
        """When to look again although nothing changed; None: no need."""
        return None if self._waiting_for is None else self._lost_at_s + self._delay_s

    def look(
        self, lost: Collection[BookieId], delay_s: float, now_s: float
    ) -> tuple[BookieId, ...]:
        """Return the bookies whose ledgers are to be marked now, all that are lost, or none."""
        self._handled &= frozenset(lost)
        new = sorted(bookie for bookie in lost if bookie not in self._handled)
        if len(new) != 1:
            self._waiting_for = None
            return tuple(sorted(lost)) if new else ()
        if self._waiting_for != new[0]:
            self._waiting_for, self._lost_at_s = new[0], now_s
        self._delay_s = delay_s
        if now_s < self._lost_at_s + delay_s:
            return ()
        return tuple(sorted(lost))

    def on_marked(self, bookies: Collection[BookieId]) -> None:
        """All ledgers of `bookies` are marked."""
        self._handled = frozenset(bookies)
        self._waiting_for = None
