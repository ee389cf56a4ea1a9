"""Quire as a system under test: what `quire up` starts, with three brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ops.bench.peers.system import BROKERS, SystemName
from ops.local import LocalCluster, LocalConfig, Programs
from ops.ports import pick_free, pick_free_run

BOOKIES: Final = 3
_ADMIN_PORTS: Final = 100 + BOOKIES


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

    def __init__(self, folder: Path) -> None:
        self._config = LocalConfig(
            data=folder,
            bookies=BOOKIES,
            brokers=BROKERS,
            kafka_port=pick_free_run(BROKERS),
            bookie_port=pick_free_run(BOOKIES),
            admin_port=pick_free_run(_ADMIN_PORTS),
            zookeeper_port=pick_free(1)[0],
            no_restart=True,  # a killed broker stays dead: what is measured is the takeover
        )
        self._cluster: LocalCluster | None = None
        self._state: dict[str, Any] = {}
        self.bootstrap_servers = ""

    async def start(self) -> None:
        """Start everything. Raises QuireError; then nothing is left running."""
        cluster = LocalCluster(self._config, Silent(), Programs())
        try:
            await cluster.start()
        except BaseException:
            await cluster.stop()
            raise
        self._cluster = cluster
        self._state = dict(cluster.describe())
        self.bootstrap_servers = str(self._state["bootstrap_servers"])

    async def stop(self) -> None:
        """Stop brokers, bookies, ZooKeeper."""
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            await cluster.stop()

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
