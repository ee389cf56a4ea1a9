"""Ledger metadata: the value, its legal transitions, and the fragments: who stores which entry.

Covers what may change in a ledger's znode and how. A value is immutable; every transition returns
a new one, to be written by compare-and-set:

    OPEN ──────────────► IN_RECOVERY           somebody recovers the ledger
    OPEN, IN_RECOVERY ─► CLOSED(last, length)  final
    OPEN, IN_RECOVERY ─► same state            new ensemble from a first entry onwards
    any state ─► same state                    other members of a settled fragment, once they
                                               have copies of its entries

A new ensemble whose first entry equals that of the last fragment replaces it (nothing was
confirmed in the old one), otherwise it is appended; it never starts below the last fragment,
which would re-assign confirmed entries (TLA+ "OnlyValidFragments", issue 2615).
Bytes are the business of `metadata_codec.py`.

Quorum rules of a fragment (`Schedule`):

- write set: entry e goes to the Qw ensemble indices (e + i) mod E, i = 0..Qw-1;
- ack quorum: e is confirmed once Qa indices of its write set stored it;
- coverage: a fact known at some indices holds for the whole fragment once no Qa indices of any
  write set are without it, because then no entry can reach its ack quorum behind our back;
- a negative read verdict for one entry needs the same over its write set: Qw - Qa + 1 bookies
  that say "never stored".

Sets of indices are bit masks (bit i = index i): cheap to keep per pending add, and ordered.

With fewer bookies than a new ledger should have, it may shrink, if its caller wishes (`fitting`):

- SHRINK-STRIPE  opportunistic striping: the ensemble may shrink to the write quorum. Every entry
                 still has all its copies, they are only striped over fewer bookies.
- SHRINK-COPIES  the write quorum, too, may shrink, but never below what the caller names, and so
                 never below the ack quorum: what was promised of an acknowledgement holds, the
                 spare copies are missing. For a cluster that has lost bookies and must go on.

Sources: `LedgerMetadataBuilder`, `LedgerMetadataUtils`, `RoundRobinDistributionSchedule` and its
`RRQuorumCoverageSet`, BookKeeper protocol text. SHRINK-STRIPE is
`ClientConfiguration.opportunisticStriping`; SHRINK-COPIES is beyond Java.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from client.errors import IncorrectParameter, LocalProtocolError
from client.ids import NO_ENTRY, BookieId, EntryId
from client.wire.bookkeeper.entry import DigestType

FORMAT_VERSION: Final = 3
"""Metadata format that new ledgers get."""

_KEPT: Final = 256
"""Schedules in use at once: as many as there are kinds of ledgers."""


class LedgerState(enum.IntEnum):
    """Life of a ledger, numbered as LedgerMetadataFormat does."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


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


def fitting(
    wanted: Schedule, bookie_count: int, *, striping: bool, write_quorum_min: int | None = None
) -> Schedule:
    """Return the largest schedule up to `wanted` that the rules allow and the bookies fill.

    If even the smallest one needs more bookies than there are, that one is returned: choosing its
    ensemble fails. Raises IncorrectParameter for a `write_quorum_min` outside Qa..Qw.
    """
    least = wanted.ensemble_size
    if write_quorum_min is not None:
        if not wanted.ack_quorum <= write_quorum_min <= wanted.write_quorum:
            raise IncorrectParameter(
                f"the write quorum may shrink to {wanted.ack_quorum}..{wanted.write_quorum}, not"
                f" to {write_quorum_min}"
            )
        least = write_quorum_min
    elif striping:
        least = wanted.write_quorum
    ensemble_size = max(least, min(wanted.ensemble_size, bookie_count))
    write_quorum = min(wanted.write_quorum, ensemble_size)
    return schedule_of(ensemble_size, write_quorum, wanted.ack_quorum)


class Fragment(NamedTuple):
    """A run of entries with one ensemble, up to the next fragment's first entry."""

    first_entry: EntryId
    ensemble: tuple[BookieId, ...]
    """E bookies; the order decides the write sets."""


class UnknownFields(NamedTuple):
    """Fields of another release, as their bytes: updates write them back where they were."""

    of_ledger: bytes = b""
    of_fragments: Mapping[EntryId, bytes] = {}
    """By first entry, which a fragment keeps when its bookies change."""
    of_custom: Mapping[str, bytes] = {}


NO_UNKNOWN_FIELDS: Final = UnknownFields()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """Everything a ledger's znode says."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    """At least one, the first at entry 0, ascending by first entry."""
    state: LedgerState = LedgerState.OPEN
    last_entry: EntryId = NO_ENTRY
    """Id of the last entry once CLOSED (-1: empty); -1 before."""
    length: int = 0
    """Payload bytes of the whole ledger once CLOSED; 0 before."""
    digest_type: DigestType | None = None
    """None only in ledgers of very old clients, which stored neither digest nor password."""
    password: bytes | None = field(default=None, repr=False)
    ctime_ms: int | None = None
    """Creation time if the creator stored it; otherwise the znode's creation time counts."""
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)
    c_token: int = 0
    """Random mark of the create call, so that a creator recognises its own node after a lost
    answer. Every later update writes 0."""
    format_version: int = FORMAT_VERSION
    """Format it was read in; updates keep it, so that older clients stay able to read."""
    kept: UnknownFields = NO_UNKNOWN_FIELDS
    """What only another release knows of it."""

    @property
    def schedule(self) -> Schedule:
        """Quorum arithmetic of this ledger."""
        return schedule_of(self.ensemble_size, self.write_quorum, self.ack_quorum)

    @property
    def is_closed(self) -> bool:
        """Whether `last_entry` and `length` are final."""
        return self.state is LedgerState.CLOSED

    @property
    def last_fragment(self) -> Fragment:
        """The fragment that new entries belong to."""
        return self.fragments[-1]

    def fragment_of(self, entry_id: EntryId) -> Fragment:
        """Return the fragment an entry belongs to."""
        for fragment in reversed(self.fragments):
            if fragment.first_entry <= entry_id:
                return fragment
        raise LocalProtocolError(f"entry {entry_id} is below the first fragment")

    def in_recovery(self) -> LedgerMetadata:
        """Return the metadata marked IN_RECOVERY. Raises LocalProtocolError when CLOSED."""
        self._require_unclosed("recover")
        return replace(self, state=LedgerState.IN_RECOVERY, c_token=0)

    def closed(self, last_entry: EntryId, length: int) -> LedgerMetadata:
        """Return the metadata CLOSED at `last_entry` with `length` payload bytes in all.

        Raises LocalProtocolError when CLOSED already.
        """
        self._require_unclosed("close")
        return replace(
            self, state=LedgerState.CLOSED, last_entry=last_entry, length=length, c_token=0
        )

    def with_ensemble(self, first_entry: EntryId, ensemble: Sequence[BookieId]) -> LedgerMetadata:
        """Return the metadata with a new ensemble from `first_entry` onwards.

        Raises LocalProtocolError when CLOSED, when the fragment would start below the last one,
        or when the ensemble does not hold E distinct bookies.
        """
        self._require_unclosed("change the ensemble of")
        fragments = with_fragment(self.fragments, Fragment(first_entry, tuple(ensemble)))
        if len(set(ensemble)) != self.ensemble_size or len(ensemble) != self.ensemble_size:
            raise LocalProtocolError(f"need {self.ensemble_size} distinct bookies: {ensemble}")
        return replace(self, fragments=fragments, c_token=0)

    def with_fragments(self, fragments: tuple[Fragment, ...]) -> LedgerMetadata:
        """Return the metadata with the fragments a recovery built in memory."""
        self._require_unclosed("change the fragments of")
        return replace(self, fragments=fragments, c_token=0)

    def with_members(self, first_entry: EntryId, ensemble: Sequence[BookieId]) -> LedgerMetadata:
        """Return the metadata with other members of the settled fragment at `first_entry`.

        Raises LocalProtocolError when the ledger's writer may still add to that fragment, or
        when the ensemble does not hold E distinct bookies.
        """
        if not self.is_closed and first_entry == self.last_fragment.first_entry:
            raise LocalProtocolError("the last fragment of an open ledger belongs to its writer")
        if len(set(ensemble)) != self.ensemble_size or len(ensemble) != self.ensemble_size:
            raise LocalProtocolError(f"need {self.ensemble_size} distinct bookies: {ensemble}")
        fragments = tuple(
            Fragment(first_entry, tuple(ensemble)) if known.first_entry == first_entry else known
            for known in self.fragments
        )
        return replace(self, fragments=fragments, c_token=0)

    def _require_unclosed(self, intent: str) -> None:
        if self.state is LedgerState.CLOSED:
            raise LocalProtocolError(f"cannot {intent} a closed ledger")


class VersionedMetadata(NamedTuple):
    """Metadata together with the znode version to compare with when writing."""

    metadata: LedgerMetadata
    version: int


def newest(known: VersionedMetadata, found: VersionedMetadata) -> VersionedMetadata:
    """Return the newer of two states of a ledger (VIEW-NEWEST): what a read finds may be older
    than what a writer or a recovery has made of it."""
    return found if found.version > known.version else known


def with_fragment(fragments: tuple[Fragment, ...], new: Fragment) -> tuple[Fragment, ...]:
    """Return `fragments` with `new` at its end: replacing a last one with the same first entry.

    Raises LocalProtocolError when `new` would start below the last fragment.
    """
    last = fragments[-1]
    if new.first_entry < last.first_entry:
        raise LocalProtocolError(
            f"a fragment at {new.first_entry} would start below the last, {last.first_entry}"
        )
    kept = fragments[:-1] if new.first_entry == last.first_entry else fragments
    return (*kept, new)
