"""Tells the oracle what brokers ask of the ledger client, and what they are told.

It sits at the seam where a broker is given its ledgers (`broker.partition.ledgers.Ledgers`): the
broker and the ledger client below are the production code, and nothing passes differently for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from broker.partition.ledgers import AddDone, Reader, Writer
    from client.ids import BookieId, EntryId, LedgerId
    from client.ledger.core.ledger_metadata import LedgerMetadata
    from client.ledger.joined_changes import RecoveryStart
    from client.metadata.store import Change
    from client.wire.bookkeeper.entry import Entry
    from client.wire.kafka.batches.records import Buffer
    from tests.simulation.ledgers.oracle import LedgerOracle


class TappedReader:
    """A reader whose entries the oracle sees."""

    def __init__(
        self, reader: Reader, oracle: LedgerOracle, by: str, *, is_end_planned: bool = False
    ) -> None:
        """`is_end_planned`: a takeover reads up to the end at which it will close the ledger. If it
        does not, nobody is shown what it has read."""
        self._reader = reader
        self._oracle = oracle
        self._by = by
        self._is_end_planned = is_end_planned
        self.ledger_id = reader.ledger_id

    @property
    def last_entry(self) -> EntryId:
        return self._reader.last_entry

    @property
    def length(self) -> int:
        return self._reader.length

    async def read(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        return self._seen(await self._reader.read(first, last))

    async def read_some(self, first: EntryId, last: EntryId) -> Sequence[Entry]:
        return self._seen(await self._reader.read_some(first, last))

    def _seen(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        ledger_id, end = self.ledger_id, self._reader.last_entry
        stays = not self._is_end_planned or self._oracle.ledger(ledger_id).closed_at == end
        for entry in entries:
            payload = bytes(entry.payload)
            self._oracle.read(ledger_id, entry.entry_id, payload, self._by, stays=stays)
        return entries


class TappedWriter:
    """A writer whose adds the oracle sees."""

    def __init__(self, writer: Writer, oracle: LedgerOracle, by: str) -> None:
        self._writer = writer
        self._oracle = oracle
        self._by = by
        self.ledger_id = writer.ledger_id
        self.room = writer.room

    @property
    def metadata(self) -> LedgerMetadata:
        return self._writer.metadata

    @property
    def is_ended(self) -> bool:
        return self._writer.is_ended

    @property
    def suspended(self) -> Sequence[BookieId]:
        return self._writer.suspended

    @property
    def lost_members(self) -> Sequence[BookieId]:
        return self._writer.lost_members

    def add(self, payload: Sequence[Buffer], on_done: AddDone) -> EntryId:
        def done(entry_id: EntryId, error: Any) -> None:
            self._oracle.added(self.ledger_id, entry_id, error)
            on_done(entry_id, error)

        entry_id = self._writer.add(payload, done)
        self._oracle.sent(self.ledger_id, entry_id, b"".join(payload))
        return entry_id

    async def close(self) -> None:
        await self._writer.close()

    def abandon(self) -> None:
        self._writer.abandon()

    def reader(self) -> TappedReader:
        return TappedReader(self._writer.reader(), self._oracle, self._by)


class TappedPlan(NamedTuple):
    """A planned ledger whose writer's adds the oracle will see."""

    ledger_id: LedgerId
    changes: Sequence[Change]
    created: Callable[[], TappedWriter]


class TappedEnd(NamedTuple):
    """A ledger whose end was found, with a reader whose entries the oracle sees."""

    reader: TappedReader
    close: Change | None


class TappedRecoveries:
    """Recoveries whose ends the oracle hears of."""

    def __init__(self, recoveries: Any, oracle: LedgerOracle, by: str) -> None:
        self._recoveries = recoveries
        self._oracle = oracle
        self._by = by

    async def starts(self, ledger_ids: Sequence[LedgerId]) -> Sequence[RecoveryStart]:
        starts: Sequence[RecoveryStart] = await self._recoveries.starts(ledger_ids)
        return starts

    async def recover(
        self, ledger_id: LedgerId, start: RecoveryStart | None = None
    ) -> TappedReader:
        reader = await self._recoveries.recover(ledger_id, start)
        self._oracle.recovered(ledger_id, reader.last_entry, self._by)
        return TappedReader(reader, self._oracle, self._by)

    async def find_end(self, ledger_id: LedgerId, start: RecoveryStart | None = None) -> TappedEnd:
        found = await self._recoveries.find_end(ledger_id, start)
        if found.close is None:
            self._oracle.recovered(ledger_id, found.reader.last_entry, self._by)
        is_planned = found.close is not None
        reader = TappedReader(found.reader, self._oracle, self._by, is_end_planned=is_planned)
        return TappedEnd(reader, found.close)


class TappedLedgers:
    """Implements `broker.partition.ledgers.Ledgers` around another one."""

    def __init__(self, ledgers: Any, oracle: LedgerOracle, by: str) -> None:
        self._ledgers = ledgers
        self._oracle = oracle
        self._by = by
        self.stats = ledgers.stats
        self.memory = ledgers.memory
        self.requests = ledgers.requests
        self.recoveries = TappedRecoveries(ledgers.recoveries, oracle, by)

    @property
    def writable_bookies(self) -> Sequence[BookieId]:
        bookies: Sequence[BookieId] = self._ledgers.writable_bookies
        return bookies

    def on_bookies_changed(self, listener: Callable[[], None]) -> None:
        self._ledgers.on_bookies_changed(listener)

    async def take_id(self) -> LedgerId:
        ledger_id: LedgerId = await self._ledgers.take_id()
        return ledger_id

    async def create(self, **options: Any) -> TappedWriter:
        return TappedWriter(await self._ledgers.create(**options), self._oracle, self._by)

    async def plan(self, **options: Any) -> TappedPlan:
        planned = await self._ledgers.plan(**options)

        def created() -> TappedWriter:
            return TappedWriter(planned.created(), self._oracle, self._by)

        return TappedPlan(planned.ledger_id, planned.changes, created)

    async def open(self, ledger_id: LedgerId) -> TappedReader:
        return TappedReader(await self._ledgers.open(ledger_id), self._oracle, self._by)

    async def delete(self, ledger_id: LedgerId) -> None:
        await self._ledgers.delete(ledger_id)

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        metadata: LedgerMetadata = await self._ledgers.describe(ledger_id)
        return metadata

    def ledgers(self) -> AsyncIterator[LedgerId]:
        ids: AsyncIterator[LedgerId] = self._ledgers.ledgers()
        return ids
