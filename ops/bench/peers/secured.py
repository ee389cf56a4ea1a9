"""Quire open, and with TLS and logins, one after the other in the same turn.

What security costs is a ratio, and a machine's pace changes from minute to minute: so the clusters
that are compared run within minutes of each other, and each round gives a ratio of its own.
"""

from __future__ import annotations

import asyncio
import enum
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from ops.bench.peers.quire import QuireSystem
from ops.local.cluster import LocalConfig
from ops.local.local_security import LocalSecurity
from ops.local.node_files import Value


class Links(enum.Enum):
    """Which connections of a cluster are secured."""

    NONE = "plaintext"
    CLIENTS = "TLS and SASL for clients"
    ALL = "TLS and SASL on every link"


class ClientLinks(LocalSecurity):
    """What `quire up --secure` makes, but bookies and ZooKeeper stay open, in plain text."""

    def cluster_security(self) -> ClusterSecurity:
        """Return how the cluster's programs reach bookies and ZooKeeper."""
        return OPEN_CLUSTER

    def bookie_settings(self) -> dict[str, Value]:
        """Return none."""
        return {}


def _client_links(config: LocalConfig) -> LocalSecurity:
    made = ClientLinks(config.data)
    made.prepare()
    return made


class SecuredTurn:
    """One turn: `opened` starts a cluster whose links are secured as one of `Links` says."""

    about = QuireSystem.about

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def start(self) -> None:
        """Make the folder; clusters are started by whoever measures them."""
        self._folder.mkdir(parents=True)

    async def stop(self) -> None:
        """Nothing runs."""

    @asynccontextmanager
    async def opened(self, links: Links) -> AsyncIterator[QuireSystem]:
        """Run a cluster, and leave nothing of it. Raises QuireError."""
        folder = self._folder / links.name.lower()
        system = QuireSystem(
            folder,
            is_secured=links is not Links.NONE,
            make_security=_client_links if links is Links.CLIENTS else None,
        )
        await system.start()
        try:
            yield system
        finally:
            await system.stop()
            await asyncio.to_thread(shutil.rmtree, folder)

    def pids(self) -> Sequence[int]:
        """Return none."""
        return []

    def data_folder(self) -> Path:
        """Return where the clusters live."""
        return self._folder

    def settings(self) -> Mapping[str, str]:
        """Return what is set."""
        return {
            Links.NONE.value: "as `quire up --brokers 3`",
            Links.CLIENTS.value: "as `quire up --brokers 3 --secure`, but bookies and ZooKeeper are"
            " reached in plain text",
            Links.ALL.value: "as `quire up --brokers 3 --secure`: SASL_SSL with SCRAM-SHA-512, TLS"
            " with certificates between brokers, bookies and ZooKeeper",
        }
