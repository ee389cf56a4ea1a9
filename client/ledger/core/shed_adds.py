"""Which adds their bookies had no room for, and for how long that is only "busy".

A bookie that sheds an add is busy, not failed (rule ADD-BUSY of `adds.py`): the add is sent to it
again after a pause. Only a bookie that has stored nothing since it began to shed, for a whole
timeout, has failed. Apache BookKeeper's `PendingAddOp` takes the first such answer for a failure.
"""

from __future__ import annotations

from typing import Final

from client.ids import BookieId, EntryId

BUSY_PAUSE_S: Final = 0.05
"""How long a bookie that sheds adds is left alone with those."""


class ShedAdds:
    """The adds of one pipeline that wait to be sent again."""

    __slots__ = ("_adds", "_timeout_s", "since_s")

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: how long a bookie may shed adds and store none; 0: it may not."""
        self._timeout_s = timeout_s
        self._adds: list[tuple[EntryId, int, BookieId]] = []
        self.since_s: dict[BookieId, float] = {}
        """When bookies that have stored nothing since began to shed."""

    def is_over(self, bookie: BookieId, now_s: float) -> bool:
        """Whether a bookie that sheds an add now has been doing so for too long."""
        return now_s - self.since_s.setdefault(bookie, now_s) >= self._timeout_s

    def add(self, entry_id: EntryId, index: int, bookie: BookieId) -> bool:
        """Let an add wait; return whether it is the first, so that the pause begins."""
        self._adds.append((entry_id, index, bookie))
        return len(self._adds) == 1

    def take(self) -> list[tuple[EntryId, int, BookieId]]:
        """The pause is over: return entry, member index and bookie of what waited."""
        adds, self._adds = self._adds, []
        return adds

    def on_stored(self, bookie: BookieId) -> None:
        """The bookie stored an add: it has room, and was busy."""
        self.since_s.pop(bookie, None)

    def keep(self, bookies: tuple[BookieId, ...]) -> None:
        """Forget bookies that are not in the ensemble any more."""
        self.since_s = {name: at_s for name, at_s in self.since_s.items() if name in bookies}
