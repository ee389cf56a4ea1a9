"""What the metadata store says about the ledgers that a bookie holds: which of them are garbage.

Deleting on a false "there is no such ledger" has cost data in the past (Apache BookKeeper issues
865, 870, 875, 876: directories that vanished while they were listed, empty ranges). Rules:

- Whoever asks has listed the local ledgers before. A ledger's node is made before its first entry
  is sent, so one that is born meanwhile is in no local list.
- `sync` comes first: a server that lags behind does not know the youngest ledgers.
- A list of names only clears ledgers. One that is not in it is asked for by name, and only a
  successful answer "no such node" counts. A list that failed says nothing, one whose directory
  vanished nothing either.
- Before and after, the cluster must be the one in our cookie: an empty or restored store has no
  ledgers at all.

Covers the lock for dropping copies.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from google.protobuf import text_format

from client.errors import ConnectionLoss, MetadataError, NodeExists, NoNode, QuireError
from client.ids import BookieId, LedgerId
from client.ledger.core import metadata_codec
from client.metadata import paths
from client.metadata.bookkeeper import read_instance_id
from client.metadata.store import MetadataStore
from client.wire.bookkeeper import protobuf

logger = logging.getLogger(__name__)

_FAILED_LISTS_MAX: Final = 3
"""After this many the metadata store is taken to be away."""


class WrongCluster(QuireError):
    """The metadata store is not that of this bookie's cluster (any more)."""


class ClusterLedgers:
    """The ledgers of a cluster, as one of its bookies needs to know them."""

    def __init__(
        self, store: MetadataStore, bookie_id: BookieId, *, instance_id: str, root: str
    ) -> None:
        """`instance_id` is that of the cluster the bookie belongs to."""
        self._store = store
        self._bookie_id = bookie_id
        self._instance_id = instance_id
        self._root = root
        self._locks: dict[LedgerId, None] = {}
        """Ledgers that are being locked, are locked, or are being released."""
        self._left: dict[LedgerId, None] = {}
        """Ledgers whose lock may be ours, because an answer was lost."""

    async def deleted(self, local: Sequence[LedgerId]) -> list[LedgerId]:
        """Return those of `local` that certainly do not exist in the cluster.

        Raises MetadataError, WrongCluster.
        """
        await self._release_left()
        await self._store.sync(self._root)
        await self._check_cluster()
        by_directory: dict[str, list[LedgerId]] = {}
        for ledger_id in local:
            directory = paths.ledger(ledger_id, self._root).rpartition("/")[0]
            by_directory.setdefault(directory, []).append(ledger_id)
        gone: list[LedgerId] = []
        failed = 0
        for directory, ledger_ids in by_directory.items():
            try:
                gone += await self._absent_from(directory, ledger_ids)
            except MetadataError as error:
                logger.warning("gc.list_failed directory=%s error=%r", directory, error)
                failed += 1
                if failed == _FAILED_LISTS_MAX:
                    raise
        await self._check_cluster()
        return gone

    async def _absent_from(self, directory: str, ledger_ids: list[LedgerId]) -> list[LedgerId]:
        names: set[str] = set()
        with contextlib.suppress(NoNode):
            names = set(await self._store.children(directory))
        return [
            ledger_id
            for ledger_id in ledger_ids
            if paths.ledger(ledger_id, self._root).rpartition("/")[2] not in names
            and await self._is_absent(ledger_id)
        ]

    async def _is_absent(self, ledger_id: LedgerId) -> bool:
        try:
            await self._store.get(paths.ledger(ledger_id, self._root))
        except NoNode:
            return True
        return False

    async def _check_cluster(self) -> None:
        try:
            found = await read_instance_id(self._store, root=self._root)
        except NoNode:
            found = None
        if found != self._instance_id:
            raise WrongCluster(
                f"{self._root} belongs to cluster {found}, this bookie to {self._instance_id}:"
                " nothing is deleted"
            )

    async def is_over_replicated(self, ledger_id: LedgerId) -> bool:
        """Whether a ledger is closed, has all its copies elsewhere, and is not under repair.

        Raises MetadataError, MetadataCorrupt.
        """
        path = paths.ledger(ledger_id, self._root)
        try:
            node = await self._store.get(path)
        except NoNode:
            return False
        metadata = self._store.unreadable.decode(path, node.data, metadata_codec.decode)
        if not metadata.is_closed:
            return False
        if any(self._bookie_id in fragment.ensemble for fragment in metadata.fragments):
            return False
        mark = paths.under_replicated_ledger(ledger_id, self._root)
        return await self._store.exists(mark) is None

    @asynccontextmanager
    async def locked(self, ledger_id: LedgerId) -> AsyncIterator[bool]:
        """Hold the lock of auto recovery on a ledger; yields False if somebody else has it.

        While it is held nobody copies the ledger to this bookie (4668), not even auto recovery
        in this process, which shares our session: hence a name of our own in the lock, by which it
        is known again (LOCK-OURS): a lock lives as long as our session, and so would one of which
        nobody knows that it is there.
        """
        if ledger_id in self._locks:
            yield False
            return
        self._locks[ledger_id] = None
        try:
            # No sync: with our own write the server has everything that was written before it.
            yield await self._lock(ledger_id)
        finally:
            await self._release(ledger_id)

    async def _lock(self, ledger_id: LedgerId) -> bool:
        """Return whether the lock is ours now, or is left from an attempt whose answer was lost."""
        path, data = paths.replication_lock(ledger_id, self._root), self._lock_data()
        try:
            await self._store.create(path, data, ephemeral=True, make_parents=True)
        except NodeExists:
            return await self._is_our_lock(path, data)
        except ConnectionLoss:
            return False
        return True

    async def _release_left(self) -> None:
        """Remove locks that could not be removed: nobody could repair these ledgers any more."""
        left, self._left = self._left, {}
        for ledger_id in left:
            if ledger_id not in self._locks:
                self._locks[ledger_id] = None
                await self._release(ledger_id)

    def _lock_data(self) -> bytes:
        name = f"{self._bookie_id} gc"
        return text_format.MessageToString(protobuf.LockDataFormat(bookieId=name)).encode()

    async def _is_our_lock(self, path: str, data: bytes) -> bool:
        """Return whether a lock is garbage collection's, in our session. Raises MetadataError."""
        await self._store.sync(path)
        try:
            node = await self._store.get(path)
        except NoNode:
            return False
        return node.data == data and node.ephemeral_owner == self._store.session_id

    async def _release(self, ledger_id: LedgerId) -> None:
        """Remove our lock; if that is impossible now, it is tried again in the next round."""
        path = paths.replication_lock(ledger_id, self._root)
        try:
            if await self._is_our_lock(path, self._lock_data()):
                await self._store.delete(path)
        except NoNode:
            pass
        except MetadataError as error:
            logger.warning("gc.lock_stays path=%s error=%r", path, error)
            self._left[ledger_id] = None
        del self._locks[ledger_id]
