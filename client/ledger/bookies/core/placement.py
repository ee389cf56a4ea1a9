"""Which bookies a ledger lives on: the first ensemble, and replacements for failed members.

Covers the seam `Placement` and the policy for when nothing is known about racks, which spreads
ledgers evenly (the one for racks is `racks.py`). Candidates come as a sorted sequence and
randomness as an `Rng`, so the same seed chooses the same bookies.

Exclusion rule for replacements: nobody who is in the ensemble (a bookie must not hold two
indices: its one disk would count twice) and nobody who has just failed, even if still listed.

Sources: `EnsemblePlacementPolicy`, `DefaultEnsemblePlacementPolicy`, `EnsembleUtils`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from client.errors import NotEnoughBookies
from client.ids import BookieId, Rng


class Placement(Protocol):
    """A policy that chooses bookies."""

    def choose_ensemble(
        self, size: int, write_quorum: int, writable: Sequence[BookieId], rng: Rng
    ) -> tuple[BookieId, ...]:
        """Return `size` distinct bookies. Raises NotEnoughBookies."""
        ...

    def choose_replacements(
        self,
        ensemble: Sequence[BookieId],
        indices: Sequence[int],
        write_quorum: int,
        writable: Sequence[BookieId],
        failed: Collection[BookieId],
        rng: Rng,
    ) -> dict[int, BookieId]:
        """Return a new bookie for each of `indices`, as far as there are candidates.

        `failed` bookies are not chosen, nor is anybody in `ensemble`. An empty result means
        that nobody is left.
        """
        ...


class RandomPlacement:
    """Every choice of distinct bookies is equally likely."""

    def choose_ensemble(
        self, size: int, write_quorum: int, writable: Sequence[BookieId], rng: Rng
    ) -> tuple[BookieId, ...]:
        """See `Placement`."""
        if len(writable) < size:
            raise NotEnoughBookies(f"need {size} writable bookies, there are {len(writable)}")
        return tuple(_sample(writable, size, rng))

    def choose_replacements(
        self,
        ensemble: Sequence[BookieId],
        indices: Sequence[int],
        write_quorum: int,
        writable: Sequence[BookieId],
        failed: Collection[BookieId],
        rng: Rng,
    ) -> dict[int, BookieId]:
        """See `Placement`."""
        candidates = [b for b in writable if b not in ensemble and b not in failed]
        chosen = _sample(candidates, min(len(indices), len(candidates)), rng)
        return dict(zip(indices, chosen, strict=False))


def _sample(bookies: Sequence[BookieId], count: int, rng: Rng) -> list[BookieId]:
    """Return `count` distinct bookies in random order: the head of a Fisher-Yates shuffle."""
    pool = list(bookies)
    for i in range(count):
        j = i + rng.randrange(len(pool) - i)
        pool[i], pool[j] = pool[j], pool[i]
    return pool[:count]
