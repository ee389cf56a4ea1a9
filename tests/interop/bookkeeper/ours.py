"""Quire's ledger client in interop tests: clients of a tree, and what entries hold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from typing import Any

from client.ids import BookieId, Rng
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.core.placement import RandomPlacement
from client.ledger.read.reader import LedgerReader
from client.ledger.standalone import WallClock
from client.ledger.write.writer import LedgerWriter
from client.metadata.zookeeper import ZooKeeperStore
from client.security.cluster_security import ClusterSecurity
from tests.interop.bookkeeper.cluster import SESSION_TIMEOUT_MS, BookieNode

JAVA_DIGESTS = {"CRC32": "CRC32", "HMAC": "MAC", "CRC32C": "CRC32C", "DUMMY": "DUMMY"}
"""Names of our digest types, and Java's for the same."""


def payload_of(entry: int) -> bytes:
    """Return what entry `entry` of every ledger holds; `Peer.java` knows the same."""
    return b"%d " % entry * (entry % 50 + 1)


def payloads(count: int, first: int = 0) -> list[bytes]:
    return [payload_of(entry) for entry in range(first, count)]


class Only(RandomPlacement):
    """Places ledgers on some bookies of a tree only."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def choose_ensemble(
        self, size: int, write_quorum: int, writable: Sequence[BookieId], rng: Rng
    ) -> tuple[BookieId, ...]:
        mine = [bookie for bookie in writable if bookie in self._names]
        return super().choose_ensemble(size, write_quorum, mine, rng)

    def choose_replacements(
        self,
        ensemble: Sequence[BookieId],
        indices: Sequence[int],
        write_quorum: int,
        writable: Sequence[BookieId],
        failed: Collection[BookieId],
        rng: Rng,
    ) -> dict[int, BookieId]:
        mine = [bookie for bookie in writable if bookie in self._names]
        return super().choose_replacements(ensemble, indices, write_quorum, mine, failed, rng)


class Ours:
    """Clients of one test, each with a session of its own."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._open: list[tuple[LedgerClient, ZooKeeperStore]] = []

    async def client(
        self,
        root: str,
        *,
        only: Collection[str] | None = None,
        security: ClusterSecurity | None = None,
        **settings: Any,
    ) -> LedgerClient:
        """Return a started client of a tree; `only`: bookies that it may place entries on."""
        store = ZooKeeperStore(self._hosts, session_timeout_ms=SESSION_TIMEOUT_MS)
        await store.start()
        client = LedgerClient(
            store,
            rng=random.Random(),
            clock=WallClock(),
            config=LedgerClientConfig(ledgers_root=root, **settings),
            bookies=security,
            placement=None if only is None else Only(only),
        )
        await client.start()
        self._open.append((client, store))
        return client

    async def close(self) -> None:
        for client, store in self._open:
            await client.close()
            await store.close()


async def fill(writer: LedgerWriter, count: int) -> None:
    """Append the entries up to `count` and wait until they are confirmed."""
    for entry in range(writer.progress.last_add_pushed + 1, count):
        await writer.submit(payload_of(entry))
    await writer.flush()


async def contents(reader: LedgerReader) -> list[bytes]:
    """Read all that may be read."""
    return [bytes(entry.payload) async for entry in reader.entries()]


async def forgotten(client: LedgerClient, node: BookieNode) -> None:
    """Wait until a bookie that was killed is no longer registered."""
    while node.bookie_id in client.writable_bookies:  # noqa: ASYNC110  a watch keeps the list
        await asyncio.sleep(0.05)
