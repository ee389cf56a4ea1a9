"""Choosing bookies with what this client knows: the live list, fresh failures, the policy.

This file is the only home of combining the three. A dead bookie stays registered for a session
timeout, so bookies that could not be reached a moment ago, or failed a ledger not long ago, are
passed over: as replacements always (else two dead ones would take turns in one ensemble, a
metadata write each time), for a new ledger as long as there are enough others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from client.ids import BookieId, Rng
from client.ledger.bookies import BookieSet
from client.ledger.core.placement import Placement


class BookieChoice:
    """The placement policy, bound to a cluster."""

    def __init__(
        self, bookies: BookieSet, placement: Placement, rng: Rng, *, failed_pause_s: float
    ) -> None:
        self._bookies = bookies
        self._placement = placement
        self._rng = rng
        self._failed_pause_s = failed_pause_s
        self._passed_over_until_s: dict[BookieId, float] = {}

    def ensemble(self, size: int) -> tuple[BookieId, ...]:
        """Return the ensemble of a new ledger. Raises NotEnoughBookies."""
        trusted = self._trusted()
        doubtful = [bookie for bookie in self._bookies.writable if bookie not in trusted]
        missing = min(size - len(trusted), len(doubtful))
        if missing > 0:
            trusted += self._placement.choose_ensemble(missing, doubtful, self._rng)
        return self._placement.choose_ensemble(size, trusted, self._rng)

    def replacements(
        self, ensemble: Sequence[BookieId], indices: Sequence[int], failed: Collection[BookieId]
    ) -> Mapping[int, BookieId]:
        """Return new bookies for some or all of `indices`, none of them in `failed`.

        The failed ones are passed over from now on, for a while.
        """
        until_s = asyncio.get_running_loop().time() + self._failed_pause_s
        self._passed_over_until_s.update((bookie, until_s) for bookie in failed)
        return self._placement.choose_replacements(
            ensemble, indices, self._trusted(), failed, self._rng
        )

    def _trusted(self) -> list[BookieId]:
        """Return the writable bookies about which nothing bad was heard lately."""
        now_s = asyncio.get_running_loop().time()
        self._passed_over_until_s = {
            bookie: until_s
            for bookie, until_s in self._passed_over_until_s.items()
            if until_s > now_s
        }
        return [
            bookie
            for bookie in self._bookies.writable
            if bookie not in self._passed_over_until_s
            and not self._bookies.bookie(bookie).is_unreachable
        ]
