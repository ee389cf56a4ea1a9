"""Bookies of both kinds in one tree of one ZooKeeper, each a process that tests may kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from client.ids import BookieId
from ops.ports import pick_free
from tests.integration.cluster import RealZooKeeper, wait_until
from tests.interop.bookkeeper import jvm

SESSION_TIMEOUT_MS = 3000
"""How long a bookie that was killed stays registered; Apache's waits for that at its next start."""

_DB_STORAGE = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 16,
    "dbStorage_rocksDB_blockCacheSize": 8388608,
}
DB_STORAGE_NODE = "java-1"
"""The bookie with the storage that Pulsar uses."""

_JAVA_SETTINGS = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "listeningInterface": "lo",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "journalMaxSizeMB": 64,
    "journalPreAllocSizeMB": 4,
    "logSizeLimit": 67108864,
    "entryLogFilePreallocationEnabled": "false",
    "diskUsageThreshold": 0.99,
    "diskUsageWarnThreshold": 0.98,
    "httpServerEnabled": "false",
    "enableStatistics": "false",
    "zkTimeout": SESSION_TIMEOUT_MS,
}


class BookieNode:
    """One bookie: a name, an address and a directory for good, and the process of the moment."""

    def __init__(
        self,
        name: str,
        port: int,
        log: Path,
        launch: Callable[..., subprocess.Popen[bytes]],
        serving: str,
    ) -> None:
        """`serving`: what its log says once it is registered and serves."""
        self.name = name
        self.port = port
        self.bookie_id = BookieId(f"127.0.0.1:{port}")
        self.log = log
        self._launch = launch
        self._serving = serving.encode()
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None

    def launch(self, *flags: str) -> None:
        """Start the process, without waiting for it; `flags` hold for this time."""
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = self._launch(*flags)

    def start(self, *flags: str) -> None:
        """Start the process and wait until it serves."""
        self.launch(*flags)
        self.wait()

    def wait(self) -> None:
        """Wait until it serves. An open port is no sign: Apache's registers after opening it."""
        wait_until(self._serves, f"bookie {self.name}, see {self.log}")

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"bookie {self.name} ended by itself, see {self.log}"
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return self._serving in log.read()

    def send(self, number: int) -> None:
        """Send a signal, as STOP and CONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """kill -9, or another way to end it; wait until it is gone."""
        self.send(number)
        assert self._process is not None
        self._process.wait(30)
        self._process = None


class BookieTree:
    """The bookies below one root in ZooKeeper."""

    def __init__(self, folder: Path, zookeeper: RealZooKeeper, root: str) -> None:
        self.folder = folder
        self.zookeeper = zookeeper.hosts
        self.root = root
        self.quire_flags: tuple[str, ...] = ()
        """Further flags of Quire's bookies."""
        self.java_settings: dict[str, object] = {}
        """Further settings of Apache's."""
        self.java_properties: dict[str, str] = {}
        """Further system properties of theirs."""
        self.nodes: dict[str, BookieNode] = {}

    @property
    def java(self) -> list[BookieNode]:
        return [node for name, node in self.nodes.items() if name.startswith("java")]

    @property
    def quire(self) -> list[BookieNode]:
        return [node for name, node in self.nodes.items() if name.startswith("quire")]

    def add(self, *, quire: int = 0, java: int = 0) -> None:
        """Start further bookies: `quire-0`, `quire-1` ..., `java-0`, ..."""
        fresh = [self._quire(f"quire-{len(self.quire) + i}") for i in range(quire)]
        fresh += [self._java(f"java-{len(self.java) + i}") for i in range(java)]
        for node in fresh:
            self.nodes[node.name] = node
            node.launch()
        for node in fresh:
            node.wait()

    def _quire(self, name: str) -> BookieNode:
        port = pick_free(1)[0]
        command = [
            *(sys.executable, "-m", "bookie"),
            f"--data-dir={self.folder / name}",
            "--host=127.0.0.1",
            f"--port={port}",
            f"--zookeeper={self.zookeeper}",
            f"--ledgers-root={self.root}",
            f"--session-timeout-ms={SESSION_TIMEOUT_MS}",
            "--free-bytes-min=0",
            "--disk-usage-threshold=1",
            "--checkpoint-bytes=2000000",
            *self.quire_flags,
        ]
        log = self.folder / f"{name}.log"

        def launch(*flags: str) -> subprocess.Popen[bytes]:
            return jvm.leashed([*command, *flags], log=log)

        return BookieNode(name, port, log, launch, "bookie.serving")

    def _java(self, name: str) -> BookieNode:
        port = pick_free(1)[0]
        settings = {
            **_JAVA_SETTINGS,
            **(_DB_STORAGE if name == DB_STORAGE_NODE else {}),
            "metadataServiceUri": f"zk+hierarchical://{self.zookeeper}{self.root}",
            **self.java_settings,
            "bookiePort": port,
            "journalDirectories": self.folder / name / "journal",
            "ledgerDirectories": self.folder / name / "ledgers",
        }
        conf = jvm.write_settings(self.folder / f"{name}.conf", settings)
        log = self.folder / f"{name}.log"
        main = "org.apache.bookkeeper.server.Main"
        launch = partial(
            jvm.launch, main, "--conf", str(conf), log=log, properties=self.java_properties
        )
        return BookieNode(name, port, log, launch, "Started component bookie-server")

    def revive(self) -> None:
        """Start whatever does not run."""
        dead = [node for node in self.nodes.values() if not node.runs]
        for node in dead:
            node.launch()
        for node in dead:
            node.wait()

    def kill_all(self) -> None:
        for node in self.nodes.values():
            if node.runs:
                node.kill()

    @contextmanager
    def auto_recovery(self, kind: str) -> Iterator[None]:
        """Run auto recovery alone: Apache's for "java", ours for "quire"."""
        log = self.folder / f"auto-recovery-{kind}.log"
        if kind == "java":
            settings = {
                "metadataServiceUri": f"zk+hierarchical://{self.zookeeper}{self.root}",
                "bookieId": "auto-recovery",
                "bookiePort": pick_free(1)[0],
                "allowLoopback": "true",
                "advertisedAddress": "127.0.0.1",
                "openLedgerRereplicationGracePeriod": 1000,
                "rwRereplicateBackoffMs": 500,
                "httpServerEnabled": "false",
                "zkTimeout": SESSION_TIMEOUT_MS,
            }
            conf = jvm.write_settings(self.folder / "auto-recovery.conf", settings)
            main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
            process = jvm.launch(main, "--conf", str(conf), log=log)
        else:
            process = jvm.leashed(
                [
                    *(sys.executable, "-m", "ops.autorecovery"),
                    f"--zookeeper={self.zookeeper}",
                    f"--ledgers-root={self.root}",
                    f"--session-timeout-ms={SESSION_TIMEOUT_MS}",
                    "--recovery-poll-ms=300",
                    "--recovery-retry-min-ms=300",
                    "--recovery-open-ledger-grace-ms=1000",
                ],
                log=log,
            )
        try:
            yield
            assert process.poll() is None, f"auto recovery ended by itself, see {log}"
        finally:
            process.kill()
            process.wait()


def ids(nodes: Sequence[BookieNode]) -> list[BookieId]:
    """Return what the cluster calls these bookies."""
    return [node.bookie_id for node in nodes]


LONG_RUN_S = float(os.environ.get("QUIRE_INTEROP_SECONDS", "0"))
"""How long each run with kill -9 lasts in the long form; 0 for the short form."""


def run_s(short: float) -> float:
    """Return how long a run with kill -9 shall last."""
    return LONG_RUN_S or short
