"""What operators set for all nodes of auto recovery: on or off, the delay, an audit now.

Covers the nodes and bytes that are shared with Apache BookKeeper: an empty node that switches auto
recovery off, and the lost-bookie delay (seconds as text), every write of which asks for an audit.

Source: Apache BookKeeper `ZkLedgerUnderreplicationManager`.
"""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from client.errors import NodeExists, NoNode, VersionConflict
from client.metadata import paths
from client.metadata.store import MetadataStore, Watcher

_DIGITS_MAX: Final = 18


class Delay(NamedTuple):
    """The cluster's lost-bookie delay, as its node says."""

    seconds: float
    version: int
    """Grows with every write: each one asks for an audit."""


def decode_delay(data: bytes) -> float:
    """Return the seconds that a delay's node says. Raises ValueError."""
    if len(data) > _DIGITS_MAX:
        raise ValueError(f"{len(data)} bytes are no number of seconds")
    return float(int(data))


class Switches:
    """The settings of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self._root = root

    async def is_disabled(self, watcher: Watcher | None = None) -> bool:
        """Whether an operator switched auto recovery off."""
        path = paths.replication_disabled(self._root)
        return await self._store.exists(path, watcher) is not None

    async def disable(self) -> None:
        """Switch it off, for all nodes."""
        with contextlib.suppress(NodeExists):
            path = paths.replication_disabled(self._root)
            await self._store.create(path, make_parents=True)

    async def enable(self) -> None:
        """Switch it on again."""
        with contextlib.suppress(NoNode):
            await self._store.delete(paths.replication_disabled(self._root))

    async def delay(self, watcher: Watcher | None = None) -> Delay | None:
        """Return the cluster's lost-bookie delay; None: it has none, or none that can be read: then
        each node goes by its own setting."""
        path = paths.lost_bookie_delay(self._root)
        try:
            node = await self._store.get(path, watcher)
        except NoNode:
            if watcher is not None and await self._store.exists(path, watcher) is not None:
                return await self.delay(watcher)
            return None
        try:
            return Delay(self._store.unreadable.decode(path, node.data, decode_delay), node.version)
        except ValueError:
            return None

    async def set_delay(self, seconds: int) -> None:
        """Set the lost-bookie delay."""
        path = paths.lost_bookie_delay(self._root)
        data = str(seconds).encode()
        try:
            await self._store.set(path, data)
        except NoNode:
            with contextlib.suppress(NodeExists):
                await self._store.create(path, data, make_parents=True)

    async def trigger(self) -> None:
        """Ask the auditor for an audit: writing the delay anew, unchanged, does that.

        So does whoever sets another one meanwhile. What cannot be read stays as it is, and asks for
        nothing.
        """
        path = paths.lost_bookie_delay(self._root)
        await self._store.sync(path)
        try:
            node = await self._store.get(path)
            await self._store.set(path, node.data, node.version)
        except VersionConflict:
            return
        except NoNode:
            with contextlib.suppress(NodeExists):
                await self._store.create(path, b"0", make_parents=True)
