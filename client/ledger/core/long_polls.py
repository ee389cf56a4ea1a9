"""Whom to ask for news of an open ledger, and when: the pacing of long polls.

Rule TAIL-POLL: whoever follows a ledger has at most one long poll parked at each member of its
last ensemble. All of them are asked, since which one hears of a new LAC first depends on the entry
that carries it, and any of them may be slow or suspended. A poll that was answered with nothing
new well before its time, or failed, is not repeated at once but after a pause: a fenced ledger
answers polls immediately, and a dead bookie fails them.

Source: Apache BookKeeper `ReadLastConfirmedAndEntryOp`, which asks one after the other instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from client.ids import BookieId

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
