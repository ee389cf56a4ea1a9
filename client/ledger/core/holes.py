"""Which bookies lack confirmed entries that they are members for, and when to say so.

A confirmed entry is on Qa bookies, as its owner was promised, but it belongs on all Qw of its
write set: whoever failed it, was suspended or was fenced before it arrived has a hole there that
no later add fills. The account goes to auto recovery as a mark on the ledger
(`under_replication.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from client.ids import BookieId


class Holes:
    """The account of one ledger handle."""

    __slots__ = ("_has_news", "counts")

    def __init__(self) -> None:
        self.counts: dict[BookieId, int] = {}
        """How many confirmed entries each bookie lacks, as far as known."""
        self._has_news = False

    def add(self, bookies: Iterable[BookieId]) -> None:
        """Each of `bookies` lacks one more entry."""
        for bookie in bookies:
            self.counts[bookie] = self.counts.get(bookie, 0) + 1
            self._has_news = True

    def news(self) -> tuple[BookieId, ...]:
        """Return everybody who lacks entries if there are more holes than last time, else ()."""
        if not self._has_news:
            return ()
        self._has_news = False
        return tuple(self.counts)
