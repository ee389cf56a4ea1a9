"""A cluster for tests of the ledger client: in-memory metadata, scripted bookies, many clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from client.errors import LedgerError
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.under_replication import read_mark
from client.ledger.write.writer import LedgerWriter
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster, MemoryStore
from tests.fakes.bookies import FakeBookies
from tests.fakes.clock import FakeClock


class LedgerCluster:
    """Metadata and bookies shared by the clients that `client` makes."""

    def __init__(self, names: Iterable[str], seed: int = 1) -> None:
        self.metadata = MemoryCluster(reconnect_delay_s=0.0)
        self.bookies = FakeBookies(names)
        self.rng = random.Random(seed)
        self.stores: list[MemoryStore] = []

    @classmethod
    async def start(cls, *names: str, seed: int = 1) -> LedgerCluster:
        """Return a cluster with an initialised metadata tree."""
        cluster = cls(names, seed)
        await init_bookkeeper(cluster.metadata.session(), rng=cluster.rng)
        return cluster

    async def client(self, config: LedgerClientConfig | None = None) -> LedgerClient:
        """Return a started client with its own metadata session."""
        store = self.metadata.session()
        self.stores.append(store)
        client = LedgerClient(
            store,
            rng=self.rng,
            clock=FakeClock(),
            config=config or LedgerClientConfig(metadata_retry_delay_ms=0),
            bookies=self.bookies,
        )
        await client.start()
        return client

    def stored_metadata(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Return a ledger's metadata as the store has it, without asking anybody."""
        return metadata_codec.decode(self.metadata.tree.get(paths.ledger(ledger_id)).data)

    def store_metadata(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> None:
        """Write a ledger's metadata as another client would."""
        self.metadata.tree.set(paths.ledger(ledger_id), metadata_codec.encode(metadata), -1)

    def check_ledger(self, ledger_id: LedgerId, confirmed: Iterable[EntryId]) -> None:
        """Assert that every entry somebody was told is confirmed can be had from its fragment.

        Invariants L2 and L4: it is below the end, if there is one, and on Qa bookies at least.
        """
        metadata = self.stored_metadata(ledger_id)
        for entry_id in confirmed:
            assert not metadata.is_closed or entry_id <= metadata.last_entry, "truncated"
            fragment = metadata.fragment_of(entry_id)
            indices = metadata.schedule.write_set(entry_id)
            wanted = {fragment.ensemble[index] for index in indices}
            holders = wanted & set(self.bookies.holders(ledger_id, entry_id))
            assert len(holders) >= metadata.ack_quorum, f"entry {entry_id} is on {holders} only"

    def lacking(self, ledger_id: LedgerId) -> set[BookieId]:
        """Return the bookies without some entry of a closed ledger that they are members for."""
        metadata = self.stored_metadata(ledger_id)
        found: set[BookieId] = set()
        for entry_id in map(EntryId, range(metadata.last_entry + 1)):
            ensemble = metadata.fragment_of(entry_id).ensemble
            wanted = {ensemble[index] for index in metadata.schedule.write_set(entry_id)}
            found |= wanted.difference(self.bookies.holders(ledger_id, entry_id))
        return found

    async def marked(self, ledger_id: LedgerId) -> set[BookieId]:
        """Return the bookies that a ledger's under-replication mark names."""
        mark = await read_mark(self.metadata.session(), ledger_id)
        return set(mark.bookies) if mark is not None else set()


class Outcomes:
    """What a writer was told about its adds."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self.told: list[tuple[EntryId, LedgerError | None]] = []

    def add(self, payload: bytes = b"payload", entry_id: EntryId | None = None) -> EntryId:
        return self.writer.add(
            [payload], lambda *outcome: self.told.append(outcome), entry_id=entry_id
        )

    @property
    def confirmed(self) -> list[EntryId]:
        return [entry_id for entry_id, error in self.told if error is None]

    @property
    def failed(self) -> list[EntryId]:
        return [entry_id for entry_id, error in self.told if error is not None]

    @property
    def errors(self) -> list[type[LedgerError]]:
        """Return the distinct kinds of error, in order of appearance."""
        return list(dict.fromkeys(type(error) for _, error in self.told if error is not None))


async def settle(rounds: int = 40) -> None:
    """Let everything happen that needs no timer."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let things happen until a condition holds (the test's time limit bounds the wait)."""
    while not condition():  # noqa: ASYNC110  there is no event behind most conditions
        await asyncio.sleep(0.001)
