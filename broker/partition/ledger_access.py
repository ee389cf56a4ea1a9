"""The ledger client as brokers use it: with the cluster's ledger password on every call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from broker.partition.ledgers import FoundEnd, PlannedLedger, Reader, Writer
from client.held_memory import HeldMemory
from client.ids import BookieId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.joined_changes import RecoveryStart
from client.ledger.recoveries import Recoveries
from client.node.grouped_requests import GroupedRequests


class RecoveryAccess:
    """Implements `broker.partition.ledgers.Recoveries`."""

    def __init__(self, recoveries: Recoveries, password: bytes) -> None:
        self._recoveries = recoveries
        self._password = password

    async def starts(self, ledger_ids: Sequence[LedgerId]) -> Sequence[RecoveryStart]:
        """Read what recoveries begin from, together."""
        return await self._recoveries.starts(ledger_ids)

    async def recover(self, ledger_id: LedgerId, start: RecoveryStart | None = None) -> Reader:
        """Fence the ledger and close it at its true end."""
        return await self._recoveries.recover(ledger_id, start, password=self._password)

    async def find_end(self, ledger_id: LedgerId, start: RecoveryStart | None = None) -> FoundEnd:
        """Fence the ledger and find its true end."""
        return await self._recoveries.find_end(ledger_id, start, password=self._password)


class LedgerAccess:
    """Implements `broker.partition.ledgers.Ledgers`; see the ledger client for the contracts."""

    def __init__(self, client: LedgerClient, password: bytes) -> None:
        self._client = client
        self._password = password
        self.stats = client.stats
        self.recoveries = RecoveryAccess(client.recoveries, password)

    @property
    def memory(self) -> HeldMemory:
        """Counts the bytes of its writers' entries until every bookie has answered."""
        return self._client.memory

    @property
    def writable_bookies(self) -> Sequence[BookieId]:
        """Bookies that accept new entries."""
        return self._client.writable_bookies

    @property
    def requests(self) -> GroupedRequests | None:
        """What changes of ledgers leave with."""
        return self._client.requests

    def on_bookies_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever bookies join or leave."""
        self._client.on_bookies_changed(listener)

    async def create(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        write_quorum_min: int,
        ledger_id: LedgerId | None = None,
        custom_metadata: Mapping[str, bytes] | None = None,
    ) -> Writer:
        """Create a ledger on the bookies that are available now."""
        return await self._client.create(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            write_quorum_min=write_quorum_min,
            ledger_id=ledger_id,
            password=self._password,
            custom_metadata=custom_metadata,
        )

    async def plan(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        write_quorum_min: int,
        ledger_id: LedgerId | None = None,
        custom_metadata: Mapping[str, bytes] | None = None,
    ) -> PlannedLedger:
        """Return a ledger for a transaction of the caller to create."""
        return await self._client.plan(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            write_quorum_min=write_quorum_min,
            ledger_id=ledger_id,
            password=self._password,
            custom_metadata=custom_metadata,
        )

    async def take_id(self) -> LedgerId:
        """Take an id for `create`."""
        return await self._client.take_id()

    async def open(self, ledger_id: LedgerId) -> Reader:
        """Open for reading, without recovery."""
        return await self._client.open(ledger_id, password=self._password)

    async def delete(self, ledger_id: LedgerId) -> None:
        """Delete the ledger."""
        await self._client.delete(ledger_id)

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Read a ledger's metadata."""
        return await self._client.describe(ledger_id)

    def ledgers(self) -> AsyncIterator[LedgerId]:
        """Iterate over all ledgers of the cluster."""
        return self._client.ledgers()
