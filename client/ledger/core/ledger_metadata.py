"""Ledger metadata: the value, its legal transitions, and the fragments it is made of.

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

Sources: `LedgerMetadataBuilder`, `LedgerMetadataUtils`, BookKeeper protocol text.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from client.errors import LocalProtocolError
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.schedule import Schedule, schedule_of
from client.wire.bookkeeper.entry import DigestType

FORMAT_VERSION: Final = 3
"""Metadata format that new ledgers get."""


class LedgerState(enum.IntEnum):
    """Life of a ledger, numbered as LedgerMetadataFormat does."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class Fragment(NamedTuple):
    """A run of entries with one ensemble, up to the next fragment's first entry."""

    first_entry: EntryId
    ensemble: tuple[BookieId, ...]
    """E bookies; the order decides the write sets."""


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
