"""Ledger znodes: create, read, change by compare-and-set, delete, list.

Covers how a client survives an uncertain metadata store. Whoever loses an answer reads back and
looks: a creator recognises its node by the random cToken in it (rule CREATE-TOKEN), an updater
decides again on what it finds, and finds nothing left to do when its own write had arrived.

Rule READ-BACK: what is read after a lost answer or a lost race is read after a sync. The next
server may lag, and the write may still be on its way: without a sync it shows what was before, and
"nothing left to do" is concluded from that although the write takes effect a moment later. A writer
would go on with an ensemble that the metadata does not name, and entries would be confirmed on
bookies that no recovery asks. Versions are enough otherwise: a ledger's id, and so its path, is
never used again.

Sources: Apache BookKeeper `AbstractZkLedgerManager`, `MetadataUpdateLoop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from client.errors import (
    ConnectionLoss,
    LedgerExists,
    MetadataCorrupt,
    NodeExists,
    NoNode,
    NoSuchLedger,
    NotEmpty,
    SessionExpired,
    VersionConflict,
)
from client.ids import LedgerId
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata
from client.metadata import paths
from client.metadata.store import Create, MetadataStore, SetData, Versioned, Watcher
from client.node.grouped_requests import GroupedRequests

log = logging.getLogger(__name__)

T = TypeVar("T")

Transform = Callable[[LedgerMetadata], LedgerMetadata | None]
"""Metadata just read -> metadata to write, None for "nothing left to write", or an error."""

_UNCERTAIN: Final = (ConnectionLoss, SessionExpired)
_DEPTHS: Final = {2: 1, 3: 3}
"""Length of a top directory's name -> directory levels below it, see `paths.ledger`."""


class LedgerNodes:
    """The ledgers of one cluster, as the metadata store knows them."""

    def __init__(
        self, store: MetadataStore, root: str, *, attempts_max: int, retry_delay_s: float
    ) -> None:
        self._store = store
        self.requests = GroupedRequests(store)
        """What may leave together with that of other ledgers."""
        self._root = root
        self._attempts_max = attempts_max
        self._retry_delay_s = retry_delay_s

    async def create(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> VersionedMetadata:
        """Create a ledger's node. Raises LedgerExists if somebody else's is there."""
        path = paths.ledger(ledger_id, self._root)
        data = metadata_codec.encode(metadata)
        try:
            await self.retry(lambda: self.requests.create(path, data, make_parents=True))
        except NodeExists as error:
            try:
                found = await self._read_back(ledger_id)
            except (NoSuchLedger, MetadataCorrupt):  # what cannot be read is not ours
                found = None
            if found is None or found.metadata.c_token != metadata.c_token:
                raise LedgerExists(f"ledger {ledger_id} exists already") from error
            return found
        return VersionedMetadata(metadata, 0)

    def creation(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> Create:
        """Return the change that creates a ledger's node, for a transaction of somebody else."""
        return Create(paths.ledger(ledger_id, self._root), metadata_codec.encode(metadata))

    def change(self, ledger_id: LedgerId, wanted: LedgerMetadata, version: int) -> SetData:
        """Return the change of the metadata at `version`, for a transaction of somebody else."""
        return SetData(paths.ledger(ledger_id, self._root), metadata_codec.encode(wanted), version)

    async def read(self, ledger_id: LedgerId, watcher: Watcher | None = None) -> VersionedMetadata:
        """Return a ledger's metadata. Raises NoSuchLedger, MetadataCorrupt."""
        path = paths.ledger(ledger_id, self._root)
        try:
            node = await self.retry(lambda: self._get(path, watcher))
        except NoNode as error:
            raise NoSuchLedger(f"there is no ledger {ledger_id}") from error
        return self._decode(path, node)

    async def update(
        self, ledger_id: LedgerId, current: VersionedMetadata, transform: Transform
    ) -> VersionedMetadata:
        """Write what `transform` makes of the metadata, reading again whenever that is lost.

        Returns the metadata that stands in the end: ours, or what `transform` had nothing to
        add to. Raises what `transform` raises, NoSuchLedger, and MetadataError after too many
        attempts (the outcome is unknown then).
        """
        path = paths.ledger(ledger_id, self._root)
        attempts = 1
        while (wanted := transform(current.metadata)) is not None:
            try:
                data = metadata_codec.encode(wanted)
                version = await self.requests.set(path, data, current.version)
                return VersionedMetadata(wanted, version)
            except VersionConflict:
                log.info("ledger.cas_lost ledger=%d version=%d", ledger_id, current.version)
            except NoNode as error:
                raise NoSuchLedger(f"there is no ledger {ledger_id}") from error
            except _UNCERTAIN:
                if attempts == self._attempts_max:
                    raise
                attempts += 1
                await asyncio.sleep(self._retry_delay_s)
            current = await self._read_back(ledger_id)
        return current

    async def _read_back(self, ledger_id: LedgerId) -> VersionedMetadata:
        """Return what `read` does, after a sync (READ-BACK); both again if the session changes."""
        path = paths.ledger(ledger_id, self._root)

        async def newest() -> Versioned:
            await self._store.sync(path)
            return await self._store.get(path)

        try:
            node = await self.retry(newest)
        except NoNode as error:
            raise NoSuchLedger(f"there is no ledger {ledger_id}") from error
        return self._decode(path, node)

    def _decode(self, path: str, node: Versioned) -> VersionedMetadata:
        """Raises MetadataCorrupt, which names the node; so do the log and the metric."""
        try:
            metadata = self._store.unreadable.decode(path, node.data, metadata_codec.decode)
        except MetadataCorrupt as error:
            raise MetadataCorrupt(f"{path}: {error}") from error
        return VersionedMetadata(metadata, node.version)

    async def delete(self, ledger_id: LedgerId) -> None:
        """Delete a ledger's node, and directories that this leaves empty. Absent is fine."""
        path = paths.ledger(ledger_id, self._root)
        with contextlib.suppress(NoNode):
            await self.retry(lambda: self.requests.delete(path))
        self._store.unreadable.forget(path)
        parent = path.rpartition("/")[0]
        while parent != self._root:
            try:
                await self._store.delete(parent)
            except (NotEmpty, NoNode, ConnectionLoss):
                return  # others use it, or tidy up after us
            parent = parent.rpartition("/")[0]

    async def _get(self, path: str, watcher: Watcher | None) -> Versioned:
        if watcher is None:
            return await self.requests.get(path)
        return await self._store.get(path, watcher)

    async def ids(self) -> AsyncIterator[LedgerId]:
        """Yield the id of every ledger, ascending within each of the two id ranges."""
        for top in await self._children(self._root):
            if top.isdigit() and len(top) in _DEPTHS:
                async for digits in self._walk(f"{self._root}/{top}", top, _DEPTHS[len(top)]):
                    yield LedgerId(int(digits))

    async def _walk(self, path: str, digits: str, depth: int) -> AsyncIterator[str]:
        for name in await self._children(path):
            if depth == 0 and name[0] == "L" and name[1:].isdigit():
                yield digits + name[1:]
            elif depth > 0 and name.isdigit():
                async for found in self._walk(f"{path}/{name}", digits + name, depth - 1):
                    yield found

    async def _children(self, path: str) -> list[str]:
        """Return child names; none when the directory vanished, as empty ones do at any time."""
        try:
            return await self.retry(lambda: self._store.children(path))
        except NoNode:
            return []

    async def retry(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation that may be repeated, again while the store cannot be reached.

        Raises the last MetadataError after too many attempts.
        """
        for _ in range(self._attempts_max - 1):
            try:
                return await operation()
            except _UNCERTAIN as error:
                log.info("metadata.retry error=%r", error)
                await asyncio.sleep(self._retry_delay_s)
        return await operation()
