"""What a ledger lacks, and what its metadata says once it is repaired.

Covers the decisions of a repair, by the names that PROTOCOL.md and the tests use:

- REPAIR-SETTLED  only fragments that nobody adds to any more are copied: all of a closed ledger,
                  all but the last of any other. The last one belongs to its writer.
- REPAIR-GONE     a member that is not registered is replaced, in fragments without entries too.
- REPAIR-HOLES    a member that is registered gets every entry it lacks, wherever that lies in its
                  fragments; a read-only one, which takes no entries, is replaced.
- REPAIR-UNCLEAR  a member that could not say what it has is neither complete nor lost.
- REPAIR-CAS      metadata changes only where the members to be replaced still stand.
- REPAIR-OPEN     a ledger that is not closed is recovered only when members of its last ensemble
                  are gone; that fences its writer, so it gets a while to replace them itself.

Sources: Apache BookKeeper `LedgerChecker`, `LedgerFragment`, `ReplicationWorker`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from client.ids import BookieId, EntryId
from client.ledger.core.ledger_metadata import LedgerMetadata, Schedule


class Extent(NamedTuple):
    """A settled fragment."""

    first: EntryId
    last: EntryId
    """`first` - 1: it holds no entries."""
    ensemble: tuple[BookieId, ...]

    def entries_of(self, members: Collection[int], schedule: Schedule) -> Iterator[EntryId]:
        """Yield the entries that belong on at least one of these members."""
        for number in range(self.first, self.last + 1):
            entry_id = EntryId(number)
            if any(member in members for member in schedule.write_set(entry_id)):
                yield entry_id


class Loss(NamedTuple):
    """What one settled fragment lacks."""

    extent: Extent
    gone: tuple[int, ...]
    """Members to replace."""
    holes: Mapping[EntryId, tuple[int, ...]]
    """Members that stay but lack an entry."""


class ReplicationResult(enum.Enum):
    """Where a ledger's repair stands."""

    WHOLE = "whole"
    LACKING = "lacking"
    """Something is missing that could not be copied: try again later."""
    WRITER_LEFT = "writer left"
    """Not closed, and members of its last ensemble are gone (rule REPAIR-OPEN)."""
    IN_USE = "in use"
    """Not closed, and its last ensemble was marked: look again when its writer is done."""


def settled_extents(metadata: LedgerMetadata) -> list[Extent]:
    """Return the fragments that nobody adds to any more (rule REPAIR-SETTLED)."""
    fragments = metadata.fragments
    ends = [EntryId(following.first_entry - 1) for following in fragments[1:]]
    if metadata.is_closed:
        ends.append(EntryId(max(metadata.last_entry, metadata.last_fragment.first_entry - 1)))
    return [
        Extent(fragment.first_entry, last, fragment.ensemble)
        for fragment, last in zip(fragments, ends, strict=False)
    ]


def loss_of(
    extent: Extent,
    schedule: Schedule,
    lacking: Mapping[BookieId, Collection[EntryId]],
    *,
    writable: Collection[BookieId],
    readonly: Collection[BookieId],
) -> Loss | None:
    """Return what an extent lacks, None if nothing. `lacking`: entries by registered member."""
    gone: list[int] = []
    holes: dict[EntryId, tuple[int, ...]] = {}
    for member, bookie in enumerate(extent.ensemble):
        missing = lacking.get(bookie, ())
        if bookie not in writable and (bookie not in readonly or missing):
            gone.append(member)
            continue
        for entry_id in missing:
            holes[entry_id] = (*holes.get(entry_id, ()), member)
    return Loss(extent, tuple(gone), dict(sorted(holes.items()))) if gone or holes else None


def writer_left(metadata: LedgerMetadata, registered: Collection[BookieId]) -> bool:
    """Whether an unclosed ledger cannot wait for its writer any more (rule REPAIR-OPEN)."""
    ensemble = metadata.last_fragment.ensemble
    return not metadata.is_closed and any(bookie not in registered for bookie in ensemble)


def still_in_use(metadata: LedgerMetadata, marked: Collection[BookieId]) -> bool:
    """Whether marked bookies may lack entries that only the end of the ledger tells of."""
    ensemble = metadata.last_fragment.ensemble
    return not metadata.is_closed and any(bookie in marked for bookie in ensemble)


def with_replacements(
    metadata: LedgerMetadata, extent: Extent, new: Mapping[int, BookieId]
) -> LedgerMetadata | None:
    """Return metadata with the `new` members in an extent, None if it changed (rule REPAIR-CAS)."""
    for fragment in metadata.fragments:
        if fragment.first_entry == extent.first and fragment.ensemble == extent.ensemble:
            ensemble = list(fragment.ensemble)
            for member, bookie in new.items():
                ensemble[member] = bookie
            return metadata.with_members(extent.first, ensemble)
    return None
