"""Choosing bookies with what this client knows: the live list, their health, the policy.

A dead bookie stays registered for a session timeout, so bookies that
could not be reached a moment ago, or failed a ledger not long ago, are passed over: as
replacements always (else two dead ones would take turns in one ensemble, a metadata write each
time), for a new ledger as long as there are enough others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from client.errors import NotEnoughBookies
from client.ids import BookieId, Rng
from client.ledger.bookies.bookies import BookieSet
from client.ledger.core.bookie_health import BookieHealth
from client.ledger.core.placement import Placement


class BookieChoice:
    """The placement policy, bound to a cluster."""

    def __init__(
        self, bookies: BookieSet, placement: Placement, health: BookieHealth, rng: Rng
    ) -> None:
        self._bookies = bookies
        self._placement = placement
        self._health = health
        self._rng = rng

    def ensemble(self, size: int, write_quorum: int) -> tuple[BookieId, ...]:
        """Return the ensemble of a new ledger. Raises NotEnoughBookies."""
        choose, rng = self._placement.choose_ensemble, self._rng
        trusted = self._trusted()
        doubtful = [bookie for bookie in self._bookies.writable if bookie not in trusted]
        missing = min(size - len(trusted), len(doubtful))
        if missing > 0:
            trusted += choose(missing, min(missing, write_quorum), doubtful, rng)
        try:
            return choose(size, write_quorum, trusted, rng)
        except NotEnoughBookies:
            if len(trusted) == len(self._bookies.writable):
                raise
            return choose(size, write_quorum, self._bookies.writable, rng)

    def replacements(
        self,
        ensemble: Sequence[BookieId],
        indices: Sequence[int],
        write_quorum: int,
        failed: Collection[BookieId],
    ) -> Mapping[int, BookieId]:
        """Return new bookies for some or all of `indices`, none of them in `failed`.

        The failed ones are passed over from now on, for a while.
        """
        now_s = asyncio.get_running_loop().time()
        for bookie in failed:
            self._health.on_ledger_failed(bookie, now_s)
        return self._placement.choose_replacements(
            ensemble, indices, write_quorum, self._trusted(), failed, self._rng
        )

    def _trusted(self) -> list[BookieId]:
        """Return the writable bookies about which nothing bad was heard lately."""
        now_s = asyncio.get_running_loop().time()
        return [
            bookie
            for bookie in self._bookies.writable
            if not self._health.is_passed_over(bookie, now_s)
            and not self._bookies.bookie(bookie).is_unreachable
        ]
