"""A view of the metadata store that cannot change it, connected on first use.

A reader of ledgers must not be able to close one, to change a segment list or to leave anything
behind: every changing operation is refused here, before it is sent. Tasks hardly ever look (their
splits carry what they need), so they hardly ever connect.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final, NoReturn

from client.errors import AuthFailed, ConfigError, LocalProtocolError, MetadataError
from client.metadata import paths
from client.metadata.store import (
    Change,
    Changed,
    SessionListener,
    SessionState,
    Versioned,
    Watcher,
)
from client.metadata.unreadable import UnreadableNodes
from client.metadata.zookeeper import ZooKeeperStore
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity

_URI: Final = re.compile(r"(?:zk(?:\+[a-z]+)?://)?(?P<hosts>[^/]+)(?P<root>/.*)?")


def parse_uri(uri: str) -> str:
    """Return the servers of `metadataServiceUri`, with commas between.

    `host:port[,host:port...]`, or as BookKeeper writes it, `zk://host:port;host:port/ledgers`.
    Raises ConfigError.
    """
    found = _URI.fullmatch(uri.strip())
    if found is None or found["root"] not in (None, "", "/", paths.LEDGERS_ROOT):
        raise ConfigError(
            f"option metadataServiceUri={uri}: write host:port[,host:port...] of the ZooKeeper"
            f" servers; the only root is {paths.LEDGERS_ROOT}"
        )
    return str(found["hosts"]).replace(";", ",")


class MetadataView:
    """One session with ZooKeeper, made when something is looked up. A `MetadataStore`."""

    def __init__(self, uri: str, security: ClusterSecurity = OPEN_CLUSTER) -> None:
        """Connects to nothing. Raises ConfigError."""
        self.unreadable = UnreadableNodes()
        self._security = security
        self._hosts = parse_uri(uri)
        self._store: ZooKeeperStore | None = None
        self._connecting = asyncio.Lock()

    @property
    def session_id(self) -> int:
        return 0 if self._store is None else self._store.session_id

    @property
    def state(self) -> SessionState:
        return SessionState.SUSPENDED if self._store is None else self._store.state

    def add_session_listener(self, listener: SessionListener) -> None:
        """Nobody here keeps anything that a session could lose."""

    async def get(self, path: str, watcher: Watcher | None = None) -> Versioned:
        return await (await self._connected()).get(path, watcher)

    async def exists(self, path: str, watcher: Watcher | None = None) -> Versioned | None:
        return await (await self._connected()).exists(path, watcher)

    async def get_many(
        self, paths: Sequence[str], watchers: Sequence[Watcher] = ()
    ) -> list[Versioned | None]:
        return await (await self._connected()).get_many(paths, watchers)

    async def children(self, path: str, watcher: Watcher | None = None) -> list[str]:
        return await (await self._connected()).children(path, watcher)

    async def sync(self, path: str) -> None:
        await (await self._connected()).sync(path)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        _refuse(path)

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        _refuse(path)

    async def delete(self, path: str, version: int = -1) -> None:
        _refuse(path)

    async def multi(self, changes: Sequence[Change]) -> list[Changed]:
        _refuse(changes[0].path)

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    async def _connected(self) -> ZooKeeperStore:
        async with self._connecting:
            if self._store is None:
                store = ZooKeeperStore(self._hosts, security=self._security)
                try:
                    await store.start()
                except AuthFailed:
                    raise  # it says what to set
                except MetadataError as error:
                    raise MetadataError(
                        f"no ZooKeeper server answers at {self._hosts} (metadataServiceUri):"
                        f" {error}"
                    ) from error
                self._store = store
            return self._store


def _refuse(path: str) -> NoReturn:
    raise LocalProtocolError(f"the data source tried to change {path}")
