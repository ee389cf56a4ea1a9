"""Striping arithmetic: who stores which entry, and when enough bookies have answered.

Covers the quorum rules of a fragment:

- write set: entry e goes to the Qw ensemble indices (e + i) mod E, i = 0..Qw-1;
- ack quorum: e is confirmed once Qa indices of its write set stored it;
- coverage: a fact known at some indices holds for the whole fragment once no Qa indices of any
  write set are without it, because then no entry can reach its ack quorum behind our back;
- a negative read verdict for one entry needs the same over its write set: Qw - Qa + 1 bookies
  that say "never stored".

Sets of indices are bit masks (bit i = index i): cheap to keep per pending add, and ordered.

Sources: BookKeeper protocol text ("Write quorums", "Closing a ledger as a reader"),
`RoundRobinDistributionSchedule` and its `RRQuorumCoverageSet`.
"""

from __future__ import annotations

import functools
from typing import Final

from client.errors import IncorrectParameter
from client.ids import EntryId

_KEPT: Final = 256
"""Schedules in use at once: as many as there are kinds of ledgers."""


class Schedule:
    """Quorum arithmetic for one (E, Qw, Qa). Immutable."""

    __slots__ = ("ack_quorum", "ensemble_size", "write_masks", "write_quorum", "write_sets")

    def __init__(self, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
        """Raises IncorrectParameter unless E >= Qw >= Qa >= 1."""
        if not ensemble_size >= write_quorum >= ack_quorum >= 1:
            raise IncorrectParameter(
                f"need ensemble size >= write quorum >= ack quorum >= 1, got"
                f" {ensemble_size}, {write_quorum}, {ack_quorum}"
            )
        self.ensemble_size = ensemble_size
        self.write_quorum = write_quorum
        self.ack_quorum = ack_quorum
        self.write_sets: tuple[tuple[int, ...], ...] = tuple(
            tuple((first + i) % ensemble_size for i in range(write_quorum))
            for first in range(ensemble_size)
        )
        """Write set by entry id mod E, in sending order."""
        self.write_masks: tuple[int, ...] = tuple(
            sum(1 << index for index in indices) for indices in self.write_sets
        )
        """The same as bit masks."""

    def write_set(self, entry_id: EntryId) -> tuple[int, ...]:
        """Return the ensemble indices that store an entry; the first one is asked first."""
        return self.write_sets[entry_id % self.ensemble_size]

    def write_mask(self, entry_id: EntryId) -> int:
        """Return the write set as a bit mask."""
        return self.write_masks[entry_id % self.ensemble_size]

    @property
    def negatives_needed(self) -> int:
        """Explicit "never stored" answers that prove an entry was never confirmed."""
        return self.write_quorum - self.ack_quorum + 1

    def covered(self, known: int) -> bool:
        """Whether the indices in mask `known` leave no ack quorum of any write set unknown."""
        return all((mask & ~known).bit_count() < self.ack_quorum for mask in self.write_masks)

    def confirmable_without(self, missing: int) -> bool:
        """Whether every write set still has an ack quorum outside mask `missing`."""
        return all((mask & ~missing).bit_count() >= self.ack_quorum for mask in self.write_masks)


@functools.lru_cache(_KEPT)
def schedule_of(ensemble_size: int, write_quorum: int, ack_quorum: int) -> Schedule:
    """Return the one schedule of these quorums: making one takes some microseconds.

    Raises IncorrectParameter unless E >= Qw >= Qa >= 1.
    """
    return Schedule(ensemble_size, write_quorum, ack_quorum)
