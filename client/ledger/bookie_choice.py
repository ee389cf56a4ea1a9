"""Choosing bookies with what this client knows: the live list, fresh failures, the policy.

This file is the only home of combining the three. A bookie that could not be reached a moment ago
may still be registered for a session timeout. It is not taken as a replacement at all (a dead one
would only start the next ensemble change), and for a new ledger only when there are too few
others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from client.ids import BookieId, Rng
from client.ledger.bookies import BookieSet
from client.ledger.core.placement import Placement


class BookieChoice:
    """The placement policy, bound to a cluster."""

    def __init__(self, bookies: BookieSet, placement: Placement, rng: Rng) -> None:
        self._bookies = bookies
        self._placement = placement
        self._rng = rng

    def ensemble(self, size: int) -> tuple[BookieId, ...]:
        """Return the ensemble of a new ledger. Raises NotEnoughBookies."""
        reachable = self._reachable()
        candidates = reachable if len(reachable) >= size else self._bookies.writable
        return self._placement.choose_ensemble(size, candidates, self._rng)

    def replacements(
        self, ensemble: Sequence[BookieId], indices: Sequence[int], failed: Collection[BookieId]
    ) -> Mapping[int, BookieId]:
        """Return new bookies for some or all of `indices`; see `Placement`."""
        return self._placement.choose_replacements(
            ensemble, indices, self._reachable(), failed, self._rng
        )

    def _reachable(self) -> list[BookieId]:
        return [
            bookie
            for bookie in self._bookies.writable
            if not self._bookies.bookie(bookie).is_unreachable
        ]
