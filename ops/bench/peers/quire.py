"""Quire as a system under test: what `quire up` starts, with three brokers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ops.admin_api import Access, AdminApi
from ops.bench.peers.system import BROKERS, PeerError, SystemName
from ops.local.cluster import LocalCluster, LocalConfig, Programs
from ops.local.local_security import LocalSecurity
from ops.ports import pick_free_runs
from ops.rolling import wait_unloaded

BOOKIES: Final = 3
_ADMIN_PORTS: Final = 100 + BOOKIES
_UNLOAD_TIMEOUT_S: Final = 120.0


class Silent:
    """Takes the supervisor's progress and keeps only the bad news, which `quire up` would print."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def begin(self, what: str) -> None:
        """Say nothing: the bench shows its own progress."""

    def done(self, what: str) -> None:
        """Say nothing."""

    def warn(self, text: str, lines: Sequence[str] = ()) -> None:
        """Keep what went wrong."""
        self.warnings.append("\n".join([text, *lines]))


class QuireSystem:
    """ZooKeeper, three bookies and three brokers under the supervisor of `quire up`."""

    about = SystemName("quire", "synced by two of three bookies")
    compacted_copies = 1
    """The leader compacts; bookies store what it writes."""

    def __init__(
        self,
        folder: Path,
        *,
        restarts: bool = False,
        is_secured: bool = False,
        make_security: Callable[[LocalConfig], LocalSecurity] | None = None,
    ) -> None:
        """`restarts`: start processes that died again, as `quire up` does. `is_secured`: with TLS
        and logins, of all that `--secure` gives them to, or as `make_security` says."""
        self._make_security = make_security
        kafka, bookie, admin, zookeeper = pick_free_runs(BROKERS, BOOKIES, _ADMIN_PORTS, 1)
        self._config = LocalConfig(
            data=folder,
            bookies=BOOKIES,
            brokers=BROKERS,
            kafka_port=kafka,
            bookie_port=bookie,
            admin_port=admin,
            zookeeper_port=zookeeper,
            secure=is_secured,
            no_restart=not restarts,  # else a killed broker stays dead: the takeover is measured
        )
        self._cluster: LocalCluster | None = None
        self.bootstrap_servers = ""
        self.client_properties = ""
        """The file with the settings of clients, by librdkafka's names; empty: they need none."""

    async def start(self) -> None:
        """Start everything. Raises QuireError; then nothing is left running."""
        cluster = LocalCluster(self._config, Silent(), Programs(), self._make_security)
        try:
            await cluster.start()
        except BaseException:
            await cluster.stop()
            raise
        self._cluster = cluster
        self.bootstrap_servers = str(self._state["bootstrap_servers"])
        self.client_properties = str(self._state["client_config"] or "")

    async def stop(self) -> None:
        """Stop brokers, bookies, ZooKeeper."""
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            await cluster.stop()

    @property
    def _state(self) -> Mapping[str, Any]:
        """The endpoints and process ids of the moment."""
        assert self._cluster is not None, "it is not started"
        return self._cluster.describe()

    def broker_pids(self) -> Mapping[int, int]:
        """Return the process id of each broker, by its id."""
        return {broker["id"]: broker["pid"] for broker in self._state["brokers"]}

    @property
    def zookeeper(self) -> str:
        """host:port of the metadata server."""
        return str(self._state["zookeeper"])

    def bookie_pids(self) -> Sequence[int]:
        """Return the process id of each bookie."""
        return [bookie["pid"] for bookie in self._state["bookies"]]

    def pids(self) -> Sequence[int]:
        """Return brokers, bookies and ZooKeeper."""
        zookeeper = self._state["zookeeper_pid"]
        return [*self.broker_pids().values(), *self.bookie_pids(), zookeeper]

    def data_folder(self) -> Path:
        """Return the data directory of the local cluster."""
        return self._config.data

    def settings(self) -> Mapping[str, str]:
        """Return what `quire up` sets: nothing is set for the bench alone."""
        return {"all": "as `quire up --brokers 3` sets them; replication 3, ack quorum 2"}

    def _admin_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{broker['admin']}" for broker in self._state["brokers"]]

    async def is_compacted(self, topic: str) -> bool:
        """Tell whether all of a compacted topic's only partition is compacted that may be."""
        async with AdminApi(Access(tuple(self._admin_urls()))) as api:
            found = await api.get(f"/topics/{topic}/partitions/0/compaction")
        return found["state"] == "clean" and found["cleaned_ms"] is not None

    async def hand_over(self, broker: int) -> None:
        """Unload a broker, as `quire broker unload` does; it goes on running."""
        async with AdminApi(Access(tuple(self._admin_urls()))) as api:
            await api.send("PUT", f"/brokers/{broker}/unloaded")
            await wait_unloaded(api, broker, _UNLOAD_TIMEOUT_S)

    async def hand_back(self, broker: int) -> None:
        """Let an unloaded broker take its share again."""
        async with AdminApi(Access(tuple(self._admin_urls()))) as api:
            await api.send("DELETE", f"/brokers/{broker}/unloaded")

    async def rolling_restart(self) -> None:
        """Run `quire restart` over all bookies and all brokers."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ops.cli.main", "restart", "--data", str(self._config.data)),
            *("--admin", ",".join(self._admin_urls())),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise PeerError(f"`quire restart` failed:\n{said.decode()}")
