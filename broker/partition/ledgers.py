"""What a broker needs of a ledger client, as a seam.

`client.ledger.client.LedgerClient` is the real one; tests put an in-memory service behind the
same shape. Nothing here adds meaning: see the ledger client for the contracts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from client.errors import LedgerError
from client.held_memory import HeldMemory
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.stats import LedgerStats
from client.node.grouped_requests import GroupedRequests
from client.wire.bookkeeper.entry import Entry
from client.wire.kafka.batches.records import Buffer

AddDone = Callable[[EntryId, LedgerError | None], None]


class Reader(Protocol):
    """Reads one ledger up to its last confirmed entry."""

    @property
    def ledger_id(self) -> LedgerId:
        """Which ledger."""
        ...

    @property
    def last_entry(self) -> EntryId:
        """Last entry that may be read; -1: none."""
        ...

    @property
    def length(self) -> int:
        """Payload bytes up to `last_entry`."""
        ...

    async def read(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        """Read an inclusive range. Raises LedgerError."""
        ...

    async def read_some(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        """Read from `first` on, at least one entry and no more than a few megabytes or a few
        entries, up to `last`. Raises LedgerError."""
        ...


class Room(Protocol):
    """How much one writer may have under way."""

    @property
    def is_free(self) -> bool:
        """Whether the next entry should be added now."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether no other writer of this process has added anything of late."""
        ...

    def on_free(self, call: Callable[[], None]) -> None:
        """Call once, later on the loop, when there is room again or the writer has ended."""
        ...


class Writer(Protocol):
    """Writes one ledger that this process created."""

    @property
    def ledger_id(self) -> LedgerId:
        """Which ledger."""
        ...

    @property
    def metadata(self) -> LedgerMetadata:
        """Its quorums and ensembles."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether it failed, or was closed or abandoned: `add` would raise."""
        ...

    @property
    def suspended(self) -> Sequence[BookieId]:
        """Members that get no entries now, because nobody could replace them."""
        ...

    @property
    def lost_members(self) -> Sequence[BookieId]:
        """Members of its ensemble that are not registered."""
        ...

    @property
    def room(self) -> Room:
        """What says whether the next entry should be added now."""
        ...

    def add(self, payload: Sequence[Buffer], on_done: AddDone) -> EntryId:
        """Send the next entry; `on_done` runs later, in entry order. Raises LedgerError."""
        ...

    async def close(self) -> None:
        """Close the ledger at its last confirmed entry. Raises LedgerError, MetadataError."""
        ...

    def abandon(self) -> None:
        """Stop using the ledger; whoever opens the partition next recovers it."""
        ...

    def reader(self) -> Reader:
        """Read what is confirmed of this ledger while it is being written."""
        ...


class Ledgers(Protocol):
    """Creates, opens, recovers and deletes ledgers."""

    @property
    def stats(self) -> LedgerStats:
        """What is counted of them."""
        ...

    @property
    def memory(self) -> HeldMemory:
        """Where its writers count the bytes of entries until every bookie has answered."""
        ...

    @property
    def writable_bookies(self) -> Sequence[BookieId]:
        """Bookies that take new entries."""
        ...

    @property
    def requests(self) -> GroupedRequests | None:
        """What changes of ledgers leave with; None: they are in no metadata store."""
        ...

    def on_bookies_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever bookies come or go."""
        ...

    async def create(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        write_quorum_min: int,
        ledger_id: LedgerId | None = ...,
        custom_metadata: Mapping[str, bytes] = ...,
    ) -> Writer:
        """Create a ledger on bookies that are there now.

        With fewer bookies than it should have, it gets fewer copies, at least
        `write_quorum_min`. `ledger_id`: one that was taken for it. Raises LedgerError,
        MetadataError.
        """
        ...

    async def take_id(self) -> LedgerId:
        """Take an id for `create`, newer than those of all ledgers there are.

        One that is not used is wasted. Raises MetadataError.
        """
        ...

    async def open(self, ledger_id: LedgerId) -> Reader:
        """Open for reading, without recovery. Raises NoSuchLedger."""
        ...

    async def recover(self, ledger_id: LedgerId) -> Reader:
        """Fence the ledger and close it at its true end. Raises NoSuchLedger, LedgerError."""
        ...

    async def delete(self, ledger_id: LedgerId) -> None:
        """Delete the ledger; a missing one raises NoSuchLedger."""
        ...

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Read a ledger's metadata. Raises NoSuchLedger."""
        ...

    def ledgers(self) -> AsyncIterator[LedgerId]:
        """Walk all ledgers of the cluster."""
        ...
