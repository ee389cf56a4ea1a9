"""The ledger client as a broker uses it, and how the ledgers of partitions are created.

`client.ledger.client.LedgerClient` implements the interface; tests use an in-memory implementation.
Nothing is added here: see the ledger client for the contracts.

Takeovers and rolls create ledgers, labelled with the partition that they are for. Later on, for
example in the sweep of orphans, the custom metadata of a ledger tells which one that is.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Protocol

from broker.cluster.core.topology import TopicInfo
from client.errors import LedgerError
from client.held_memory import HeldMemory
from client.ids import BookieId, EntryId, LeaderEpoch, LedgerId
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.joined_changes import RecoveryStart
from client.ledger.metrics import LedgerStats
from client.metadata.store import Change
from client.node.grouped_requests import GroupedRequests
from client.wire.bookkeeper.entry import Entry
from client.wire.kafka.batches.records import Buffer

_LOG = logging.getLogger(__name__)

APPLICATION: Final = "application"
APPLICATION_NAME: Final = b"quire"
TOPIC_ID: Final = "quire.topic_id"
PARTITION: Final = "quire.partition"
LEADER_EPOCH: Final = "quire.leader_epoch"

AddDone = Callable[[EntryId, LedgerError | None], None]


class Reader(Protocol):
    """Reads one ledger up to its last confirmed entry."""

    @property
    def ledger_id(self) -> LedgerId:
        """Which ledger."""
        ...

    @property
    def last_entry(self) -> EntryId:
        """Last readable entry; -1: none."""
        ...

    @property
    def length(self) -> int:
        """Payload bytes up to `last_entry`."""
        ...

    async def read(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        """Read an inclusive range. Raises LedgerError."""
        ...

    async def read_some(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        """Read from `first` up to `last` at most: at least one entry, but no more than a few
        megabytes or a few entries. Raises LedgerError."""
        ...


class Room(Protocol):
    """How much one writer may have in flight."""

    @property
    def is_free(self) -> bool:
        """Whether the next entry should be added now."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether a writer of this process that adds little has added something recently."""
        ...

    def on_free(self, call: Callable[[], None]) -> None:
        """Call `call` once, later, when there is room again or the writer has ended."""
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
        """Whether it has failed, or was closed or abandoned: `add` would raise."""
        ...

    @property
    def suspended(self) -> Sequence[BookieId]:
        """Ensemble members that get no entries now, because there was no replacement."""
        ...

    @property
    def lost_members(self) -> Sequence[BookieId]:
        """Ensemble members that are no longer registered."""
        ...

    @property
    def room(self) -> Room:
        """Tells whether the next entry should be added now."""
        ...

    def add(self, payload: Sequence[Buffer], on_done: AddDone) -> EntryId:
        """Send the next entry; `on_done` runs later, in entry order. Raises LedgerError."""
        ...

    async def close(self) -> None:
        """Close the ledger at its last confirmed entry. Raises LedgerError, MetadataError."""
        ...

    def abandon(self) -> None:
        """Stop using the ledger; the partition's next leader recovers it."""
        ...

    def reader(self) -> Reader:
        """Return a reader of the confirmed entries while the ledger is being written."""
        ...


class FoundEnd(Protocol):
    """A ledger that nobody can add to any more, and where it ends."""

    @property
    def reader(self) -> Reader:
        """Reads all of it, up to that end."""
        ...

    @property
    def close(self) -> Change | None:
        """Closes it there; None: it is closed."""
        ...


class PlannedLedger(Protocol):
    """A ledger that is there as soon as its changes were made."""

    @property
    def ledger_id(self) -> LedgerId:
        """Which ledger."""
        ...

    @property
    def changes(self) -> Sequence[Change]:
        """What creates it."""
        ...

    @property
    def created(self) -> Callable[[], Writer]:
        """Returns its writer, once it is there."""
        ...


class Recoveries(Protocol):
    """Recovers ledgers, by itself or with changes of the caller."""

    async def starts(self, ledger_ids: Sequence[LedgerId]) -> Sequence[RecoveryStart]:
        """Read what recoveries begin from, together. Raises NoSuchLedger, MetadataError."""
        ...

    async def recover(self, ledger_id: LedgerId, start: RecoveryStart | None = ...) -> Reader:
        """Fence the ledger and close it at its true end. Raises NoSuchLedger, LedgerError."""
        ...

    async def find_end(self, ledger_id: LedgerId, start: RecoveryStart | None = ...) -> FoundEnd:
        """Do what `recover` does, but leave the closing to a transaction of the caller.

        Raises NoSuchLedger, LedgerError.
        """
        ...


class Ledgers(Protocol):
    """Creates, opens, recovers and deletes ledgers."""

    stats: LedgerStats
    """Their counters."""

    @property
    def recoveries(self) -> Recoveries:
        """Recovers them."""
        ...

    @property
    def memory(self) -> HeldMemory:
        """Counts the bytes of its writers' entries until every bookie has answered."""
        ...

    @property
    def writable_bookies(self) -> Sequence[BookieId]:
        """Bookies that accept new entries."""
        ...

    @property
    def requests(self) -> GroupedRequests | None:
        """What changes of ledgers leave with; None: they are in no metadata store."""
        ...

    def on_bookies_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever bookies join or leave."""
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
        """Create a ledger on the bookies that are available now.

        If there are too few, it gets fewer copies, but at least `write_quorum_min`. `ledger_id`:
        one that was taken for it. Raises LedgerError, MetadataError.
        """
        ...

    async def plan(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        write_quorum_min: int,
        ledger_id: LedgerId | None = ...,
        custom_metadata: Mapping[str, bytes] = ...,
    ) -> PlannedLedger:
        """Return a ledger as `create` would make it, for a transaction of the caller to create.

        Raises what `create` raises.
        """
        ...

    async def take_id(self) -> LedgerId:
        """Take an id for `create` or `plan`, newer than those of all ledgers there are.

        One that is not used is wasted. Raises MetadataError.
        """
        ...

    async def open(self, ledger_id: LedgerId) -> Reader:
        """Open for reading, without recovery. Raises NoSuchLedger."""
        ...

    async def delete(self, ledger_id: LedgerId) -> None:
        """Delete the ledger. Raises NoSuchLedger if it does not exist."""
        ...

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Read a ledger's metadata. Raises NoSuchLedger."""
        ...

    def ledgers(self) -> AsyncIterator[LedgerId]:
        """Iterate over all ledgers of the cluster."""
        ...


def ledger_labels(topic: TopicInfo, index: int, epoch: LeaderEpoch) -> dict[str, bytes]:
    """Return the custom metadata that says what a ledger is created for."""
    return {
        APPLICATION: APPLICATION_NAME,
        TOPIC_ID: topic.id_text.encode(),
        PARTITION: str(index).encode(),
        LEADER_EPOCH: str(epoch).encode(),
    }


async def create_ledger(
    ledgers: Ledgers, topic: TopicInfo, index: int, epoch: LeaderEpoch
) -> Writer:
    """Create a ledger for a partition, with the topic's quorums.

    If there are too few bookies it has fewer copies, but never fewer than the ack quorum; see
    `under_replicated_roller.py` for what happens then. Raises LedgerError, MetadataError.
    """
    writer = await ledgers.create(
        ensemble_size=topic.ensemble_size,
        write_quorum=topic.write_quorum,
        ack_quorum=topic.ack_quorum,
        write_quorum_min=topic.ack_quorum,
        custom_metadata=ledger_labels(topic, index, epoch),
    )
    warn_if_shrunk(writer, topic, index)
    return writer


async def plan_ledger(
    ledgers: Ledgers,
    topic: TopicInfo,
    index: int,
    epoch: LeaderEpoch,
    ledger_id: LedgerId | None = None,
) -> PlannedLedger:
    """Return such a ledger for the caller to create; `ledger_id`: if it was taken.

    Raises LedgerError, MetadataError.
    """
    return await ledgers.plan(
        ensemble_size=topic.ensemble_size,
        write_quorum=topic.write_quorum,
        ack_quorum=topic.ack_quorum,
        write_quorum_min=topic.ack_quorum,
        ledger_id=ledger_id,
        custom_metadata=ledger_labels(topic, index, epoch),
    )


def warn_if_shrunk(writer: Writer, topic: TopicInfo, index: int) -> None:
    """Log that a new ledger has fewer copies than its topic asks for."""
    copies = writer.metadata.write_quorum
    if copies < topic.write_quorum:
        _LOG.warning(
            "ledger.shrunk topic=%s partition=%d ledger=%d copies=%d wanted=%d",
            topic.name, index, writer.ledger_id, copies, topic.write_quorum,
        )  # fmt: skip
