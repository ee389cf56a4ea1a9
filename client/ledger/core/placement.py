"""Which bookies a ledger lives on: the first ensemble, and replacements for failed members.

Covers the seam `Placement` and the policy for when nothing is known about racks, which spreads
ledgers evenly, and the one for racks. Candidates come as a sorted sequence and
randomness as an `Rng`, so the same seed chooses the same bookies.

Exclusion rule for replacements: nobody who is in the ensemble (a bookie must not hold two
indices: its one disk would count twice) and nobody who has just failed, even if still listed.

Sources: `EnsemblePlacementPolicy`, `DefaultEnsemblePlacementPolicy`, `EnsembleUtils`.

Rule RACKS: no single rack holds too many copies of an entry. A rack is whatever fails together: it
is a name that a bookie publishes, or that the settings give it. The rule is about write sets, since
those hold the copies: every Qw neighbours of an ensemble, around its end, should span `racks_min`
racks (or Qw, if that is less).

An ensemble is filled place by place. Each place takes a random bookie from a rack that its
neighbours do not use yet, the first one from the local rack if there is one; if there is no such
bookie, from the racks its neighbours use least. Should that leave a write set in too few racks, it
is tried again, taking from the fullest racks first. A replacement is chosen like a place, with a
preference for the rack of the bookie that leaves, so that racks stay as evenly filled as they
are. What breaks the rule is refused with `enforced`, and otherwise taken: an entry in too few
racks is better than no entry.

Sources: `RackawareEnsemblePlacementPolicyImpl`, `RRTopologyAwareCoverageEnsemble`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Final, Protocol

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


DEFAULT_RACK: Final = "/default-rack"
"""Rack of bookies that have no other."""

_ATTEMPTS_MAX: Final = 8

RackOf = Callable[[BookieId], str]


class RackRelation(StrEnum):
    """Where somebody is, seen from here."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"
    """One of the two has no rack, or does not say it."""


def relation(own: str | None, theirs: str | None) -> RackRelation:
    """Compare two racks; None or "": there is none."""
    if not own or not theirs:
        return RackRelation.UNKNOWN
    return RackRelation.SAME if own == theirs else RackRelation.OTHER


class RackPlacement:
    """A `Placement` over racks. With fewer than two racks it is the random one."""

    def __init__(
        self,
        rack_of: RackOf,
        *,
        racks_min: int = 2,
        enforced: bool = False,
        local_rack: str | None = None,
    ) -> None:
        """`racks_min`: how many racks a write set should span."""
        self._rack_of = rack_of
        self._racks_min = racks_min
        self._enforced = enforced
        self._local_rack = local_rack
        self._random = RandomPlacement()

    def choose_ensemble(
        self, size: int, write_quorum: int, writable: Sequence[BookieId], rng: Rng
    ) -> tuple[BookieId, ...]:
        """See `Placement`."""
        if not self._has_racks(writable):
            return self._random.choose_ensemble(size, write_quorum, writable, rng)
        if len(writable) < size:
            raise NotEnoughBookies(f"need {size} writable bookies, there are {len(writable)}")
        ensemble = self._fill(size, write_quorum, writable, rng, fullest_first=False)
        for _ in range(_ATTEMPTS_MAX):
            if self.is_spread(ensemble, write_quorum):
                return ensemble
            ensemble = self._fill(size, write_quorum, writable, rng, fullest_first=True)
        if self._enforced and not self.is_spread(ensemble, write_quorum):
            raise NotEnoughBookies(f"no ensemble spans {self._racks_min} racks per write set")
        return ensemble

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
        left = [b for b in writable if b not in ensemble and b not in failed]
        if not self._has_racks([*left, *ensemble]):
            return self._random.choose_replacements(
                ensemble, indices, write_quorum, writable, failed, rng
            )
        places: list[BookieId | None] = [
            None if index in indices else bookie for index, bookie in enumerate(ensemble)
        ]
        chosen: dict[int, BookieId] = {}
        for index in indices:
            if not left:
                break
            preferred = self._rack_of(ensemble[index])
            near = self._racks_near(places, index, write_quorum)
            bookie = self._choose(near, left, preferred, rng)
            left.remove(bookie)
            if self._is_allowed(ensemble, {**chosen, index: bookie}, write_quorum):
                places[index] = chosen[index] = bookie
        return chosen

    def is_spread(self, ensemble: Sequence[BookieId], write_quorum: int) -> bool:
        """Whether every write set spans enough racks."""
        racks = [self._rack_of(bookie) for bookie in ensemble]
        wanted = min(self._racks_min, write_quorum)
        return all(
            len({racks[(first + i) % len(racks)] for i in range(write_quorum)}) >= wanted
            for first in range(len(racks))
        )

    def _is_allowed(
        self, ensemble: Sequence[BookieId], chosen: dict[int, BookieId], write_quorum: int
    ) -> bool:
        if not self._enforced:
            return True
        changed = [chosen.get(index, bookie) for index, bookie in enumerate(ensemble)]
        return self.is_spread(changed, write_quorum)

    def _has_racks(self, bookies: Sequence[BookieId]) -> bool:
        """Whether racks matter: there are several, or there must be."""
        return self._enforced or len({self._rack_of(bookie) for bookie in bookies}) > 1

    def _fill(
        self,
        size: int,
        write_quorum: int,
        writable: Sequence[BookieId],
        rng: Rng,
        *,
        fullest_first: bool,
    ) -> tuple[BookieId, ...]:
        places: list[BookieId | None] = [None] * size
        chosen: list[BookieId] = []
        left = list(writable)
        for index in range(size):
            preferred = self._local_rack if index == 0 else None
            near = self._racks_near(places, index, write_quorum)
            bookie = self._choose(near, left, preferred, rng, fullest_first=fullest_first)
            left.remove(bookie)
            places[index] = bookie
            chosen.append(bookie)
        return tuple(chosen)

    def _racks_near(
        self, places: Sequence[BookieId | None], index: int, write_quorum: int
    ) -> list[str]:
        """Return the racks of everybody who shares a write set with a place, once per place."""
        size = len(places)
        near = {(index + step) % size for step in range(1 - write_quorum, write_quorum)} - {index}
        return [
            self._rack_of(bookie)
            for other, bookie in enumerate(places)
            if other in near and bookie is not None
        ]

    def _choose(
        self,
        near: Sequence[str],
        candidates: Sequence[BookieId],
        preferred: str | None,
        rng: Rng,
        *,
        fullest_first: bool = False,
    ) -> BookieId:
        """Return the best of `candidates` beside the racks `near`; among equals a random one."""
        racks = [self._rack_of(bookie) for bookie in candidates]

        def cost(rack: str) -> tuple[int, bool, int]:
            return near.count(rack), rack != preferred, -racks.count(rack) * fullest_first

        least = min(map(cost, racks))
        best = [
            bookie for bookie, rack in zip(candidates, racks, strict=True) if cost(rack) == least
        ]
        return best[rng.randrange(len(best))]
