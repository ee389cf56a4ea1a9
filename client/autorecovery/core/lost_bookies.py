"""When the auditor acts on lost bookies: at once, or after the time one of them gets to return.

A bookie is lost when it has a cookie but is not registered, whether or not anybody saw it alive
(issue 4419). One newly lost bookie gets a delay, so that restarting bookies one by one copies
nothing; if it returns, nothing happened. A second one lost meanwhile ends the wait. Whatever else
happens while waiting does not (issue 3817).

A bookie that the auditor has not seen registered yet is not lost before a grace time is over: when
a whole cluster starts, the auditor is elected before most bookies are back, and would mark nearly
every ledger. (Apache BookKeeper's auditor does; there auto recovery is to be switched off first.)

Sources: Apache BookKeeper `Auditor`, `AuditorBookieCheckTask`.
"""

from __future__ import annotations

from collections.abc import Collection

from client.ids import BookieId


class LostBookies:
    """The account of one auditor."""

    def __init__(self, start_grace_s: float = 0.0) -> None:
        """`start_grace_s`: from the first look, for bookies that are lost by then."""
        self._start_grace_s = start_grace_s
        self._first_look_s: float | None = None
        self._unseen: frozenset[BookieId] = frozenset()
        """Lost since the first look."""
        self._handled: frozenset[BookieId] = frozenset()
        """Lost, and every ledger of theirs is marked."""
        self._waiting_for: BookieId | None = None
        self._lost_at_s = 0.0
        self._delay_s = 0.0

    @property
    def _grace_end_s(self) -> float:
        return (self._first_look_s or 0.0) + self._start_grace_s

    @property
    def due_s(self) -> float | None:
        """When to look again although nothing changed; None: no need."""
        return None if self._waiting_for is None else self._lost_at_s + self._delay_s

    def may_still_come(self, now_s: float) -> bool:
        """Tell whether bookies that were not seen yet have time left."""
        return bool(self._unseen) and now_s < self._grace_end_s

    def look(
        self, lost: Collection[BookieId], delay_s: float, now_s: float
    ) -> tuple[BookieId, ...]:
        """Return the bookies whose ledgers are to be marked now, all that are lost, or none."""
        if self._first_look_s is None:
            self._first_look_s, self._unseen = now_s, frozenset(lost)
        self._unseen &= frozenset(lost)
        self._handled &= frozenset(lost)
        if now_s < self._grace_end_s:
            lost = [bookie for bookie in lost if bookie not in self._unseen]
        new = sorted(bookie for bookie in lost if bookie not in self._handled)
        if len(new) != 1:
            self._waiting_for = None
            return tuple(sorted(lost)) if new else ()
        if self._waiting_for != new[0]:
            self._waiting_for = new[0]
            self._lost_at_s = self._first_look_s if new[0] in self._unseen else now_s
        self._delay_s = delay_s
        if now_s < self._lost_at_s + delay_s:
            return ()
        return tuple(sorted(lost))

    def on_marked(self, bookies: Collection[BookieId]) -> None:
        """All ledgers of `bookies` are marked."""
        self._handled = frozenset(bookies)
        self._waiting_for = None
