"""Which member of an ensemble has stayed behind the others for so long that it is to be replaced.

Covers rule CHANGE-SLOW. A bookie that makes some progress, however little, never fails by
LINK-CLOCK, and a healthy third copy of an entry waits for it for ever: its writer holds the bytes,
until it has as many as it may and goes at the pace of the slowest.

    behind  a member that has not answered the oldest add which is not answered by all, although
            that add was confirmed, and so stored by an ack quorum of others, `lag_s` ago
    slow    a member that was behind each time one looked, for `patience_s`

Being behind is measured from the confirmation, so that what slows all bookies down, the network,
this process or their common disks, makes none of them slow: the adds are confirmed late then. The
account costs nothing per add: it looks at one of them now and then. A planned change replaces the
slow member, one at a time; if there is no replacement it stays, and has as much time again. Java
has no such rule.
"""

from __future__ import annotations

from typing import NamedTuple

from client.ids import BookieId, EntryId


class SlowLimits(NamedTuple):
    """When a member is slow. Times in seconds."""

    lag_s: float
    patience_s: float
    """0: nobody is."""


class SlowMembers:
    """Who is behind in one ensemble. `look` at least twice per `lag_s`."""

    __slots__ = ("_behind_since_s", "_confirmed", "_limits")

    def __init__(self, limits: SlowLimits) -> None:
        self._limits = limits
        self._behind_since_s: dict[BookieId, float] = {}
        self._confirmed: list[tuple[float, EntryId]] = []
        """What was the LAC when one looked, a few times per `lag_s`: the newest that is `lag_s`
        old, and all after it."""

    def look(
        self, oldest: EntryId, lac: EntryId, awaited: tuple[BookieId, ...], now_s: float
    ) -> BookieId | None:
        """Return the member that is slow now, if one is.

        `oldest`: the oldest add that is not answered by all, `awaited`: who has still to answer.
        """
        confirmed = self._confirmed
        confirmed.append((now_s, lac))
        while len(confirmed) > 1 and now_s - confirmed[1][0] >= self._limits.lag_s:
            del confirmed[0]
        then_s, lac_then = confirmed[0]
        is_behind = now_s - then_s >= self._limits.lag_s and oldest <= lac_then
        since_s = self._behind_since_s
        self._behind_since_s = (
            {bookie: since_s.get(bookie, now_s) for bookie in awaited} if is_behind else {}
        )
        for bookie, began_s in self._behind_since_s.items():
            if now_s - began_s >= self._limits.patience_s:
                self._behind_since_s[bookie] = now_s
                return bookie
        return None

    def forget(self) -> None:
        """Everything is answered, or the ensemble changes: what was seen says nothing any more."""
        self._behind_since_s.clear()
        self._confirmed.clear()
