"""Notices that another broker's process is gone before its session times out.

There is one idle TCP connection to each registered peer: when a process dies, its host resets its
connections at once. If a connection breaks and the next attempt is refused, no process listens
there any more; the peer's registration is deleted, so that every broker plans without it right
away. A wrong guess only costs a takeover: fencing makes early takeovers safe, and a broker whose
registration is missing creates it again.

Anything less clear (no answer, no route, first connection refused) is left to the session timeout.

Clients may notice earlier than we do: a dying process closes its connections one by one. So before
an answer names a broker to a client, that broker is probed (`ask`), and it is suspected to be dead
while its connection has only just broken (`is_suspected`); see `leader_changes.py`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from broker.cluster.core.topology import BrokerInfo
from broker.cluster.peer_access import PeerAccess
from broker.cluster.peer_connection import PeerConnection, connect
from client.errors import ConfigError, LogCorrupt, MetadataError, NoNode, VersionConflict
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background
from client.wire.kafka.sasl_login import LoginRefused

_LOG = logging.getLogger(__name__)

_SUSPECT_MAX_S: Final = 2.0
"""How long a broken connection makes a peer suspect: clients may still reach it."""
_PAUSE_MIN_S: Final = 0.02
"""A dying process may accept one more connection, and break it. Short: clients are waiting."""
_PAUSE_MAX_S: Final = 10.0
_STEADY_S: Final = 0.1
"""After a connection that broke sooner than this, there is a pause before the next attempt."""


class ClusterBrokers(Protocol):
    """The part of the cluster's view that is needed here."""

    brokers: Mapping[BrokerId, BrokerInfo]

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call after any change."""
        ...


class Peers:
    """One task and connection per registered broker other than this one."""

    def __init__(
        self,
        store: MetadataStore,
        cluster: ClusterBrokers,
        me: BrokerId,
        answer_max_s: float,
        access: PeerAccess | None = None,
    ) -> None:
        """`answer_max_s`: longest wait for the answer to a probe; 0: peers are not probed.
        `access`: how to connect to peers."""
        self._access = access
        self._answer_max_s = answer_max_s
        self._store = store
        self._cluster = cluster
        self._me = me
        self._watches: dict[tuple[BrokerId, str], asyncio.Task[None]] = {}
        self._connections: dict[BrokerId, PeerConnection] = {}
        """The last connection to each registered peer, whether still open or not."""
        self._closing = False

    def start(self) -> None:
        """Begin to connect to peers."""
        self._cluster.add_listener(self._follow)
        self._follow()

    async def close(self) -> None:
        """Close all connections."""
        self._closing = True
        tasks = list(self._watches.values())
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, brokers: Iterable[BrokerId]) -> None:
        """Probe brokers: wait until each has answered, lost its connection, or taken too long."""
        if not self._answer_max_s:
            return
        answers = [self._connections[b].ask() for b in brokers if b in self._connections]
        if answers:
            await asyncio.wait(answers, timeout=self._answer_max_s)

    def is_suspected(self, broker: BrokerId) -> bool:
        """Return whether the connection to a registered peer has just broken and is not back."""
        connection = self._connections.get(broker)
        if connection is None or not connection.lost.done():
            return False
        return asyncio.get_running_loop().time() - connection.lost.result() < _SUSPECT_MAX_S

    def _follow(self) -> None:
        if self._closing:
            return
        present = {
            (info.id, info.incarnation): info
            for info in self._cluster.brokers.values()
            if info.id != self._me
        }
        for key in [key for key in self._watches if key not in present]:
            self._watches.pop(key).cancel()
            self._connections.pop(key[0], None)
        for key, info in present.items():
            if key not in self._watches:
                self._watches[key] = background.keep(partial(self._watch, info), f"peer {info.id}")

    async def _watch(self, peer: BrokerInfo) -> None:
        """Keep a connection to the peer until its process is gone."""
        loop = asyncio.get_running_loop()
        pause_s = _PAUSE_MIN_S
        was_connected = False
        while True:
            try:
                connection = await connect(peer, self._access)
            except ConnectionRefusedError:
                if was_connected and await self._declare_gone(peer):
                    return
            except (ConfigError, LoginRefused, ssl.SSLError) as error:
                _LOG.warning("peer.not_trusted broker=%d error=%r", peer.id, str(error))
                was_connected = False
            except (OSError, TimeoutError, ValueError):  # ValueError: an invalid host name
                was_connected = False
            else:
                was_connected = True
                self._connections[peer.id] = connection
                since_s = loop.time()
                try:
                    await connection.lost
                finally:
                    connection.close()
                if loop.time() - since_s >= _STEADY_S:
                    pause_s = _PAUSE_MIN_S
                    continue
            await asyncio.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, 2 * pause_s)

    async def _declare_gone(self, peer: BrokerInfo) -> bool:
        """Delete the registration if it still belongs to that incarnation; false: try again."""
        path = paths.broker(peer.id)
        try:
            node = await self._store.get(path)
            if BrokerInfo.decode(peer.id, node.data).incarnation != peer.incarnation:
                return True
            await self._store.delete(path, node.version)
        except (NoNode, VersionConflict, LogCorrupt):
            return True
        except MetadataError as error:
            _LOG.warning("peer.not_removed broker=%d error=%r", peer.id, error)
            return False
        _LOG.warning(
            "peer.gone broker=%d incarnation=%s address=%s:%d",
            peer.id,
            peer.incarnation,
            peer.host,
            peer.port,
        )
        return True
