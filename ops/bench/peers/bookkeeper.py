"""Apache BookKeeper as a system under test: its bookies, and its client's load program.

The jars are those that `install.sh` fetched. Everything is BookKeeper's default (with the heap
and the collector of its own start script), but for what bookies on one machine need.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ops.bench.peers.bookies import Bookies, size_of
from ops.bench.peers.system import PeerError, SystemName
from ops.child import Child
from ops.java import find_java

NAME: Final = "bookkeeper"
HOME: Final = Path(__file__).parent / "java-bookkeeper"
LIB: Final = HOME / "lib"
HEAP: Final = "-Xms1g -Xmx1g -XX:MaxDirectMemorySize=2g"
_LOGGING: Final = f"-Dlog4j2.configurationFile={HOME / 'log4j2.xml'}"
_JVM: Final = (
    *HEAP.split(),
    *("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=10", "-XX:+ParallelRefProcEnabled"),
    *("-XX:+UnlockExperimentalVMOptions", "-XX:G1NewSizePercent=50", "-XX:+DisableExplicitGC"),
    *("-XX:-ResizePLAB", "-Djava.net.preferIPv4Stack=true"),
    _LOGGING,
)
_SETTINGS: Final = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "listeningInterface": "lo",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "httpServerEnabled": "false",
}


def is_installed() -> bool:
    """Tell whether BookKeeper's jars are there."""
    return (LIB / ".pins").exists()


def version() -> str | None:
    """Return the version of the jars; None if they are not there."""
    jars = sorted(LIB.glob("bookkeeper-server-*.jar"))
    return jars[0].stem.rpartition("-")[2] if jars else None


def load_command() -> list[str]:
    """Return the load program of BookKeeper's client, to which its arguments are appended."""
    java = str(find_java().path)
    return [java, *HEAP.split(), _LOGGING, "-cp", f"{LIB}:{LIB}/*", "LedgerLoad"]


class JavaBookies(Bookies):
    """Apache BookKeeper's bookies."""

    def __init__(self, folder: Path, count: int) -> None:
        if not is_installed():
            raise PeerError(f"Apache BookKeeper is not in {LIB}: run ops/bench/peers/install.sh")
        super().__init__(folder, count, SystemName(NAME, "synced by the ack quorum"))

    def _bookie(self, i: int) -> Child:
        settings = {
            **_SETTINGS,
            "metadataServiceUri": f"zk+hierarchical://{self.zookeeper}/ledgers",
            "bookiePort": str(self.ports[i]),
            "journalDirectories": str((self._data(i) / "journal").resolve()),
            "ledgerDirectories": str((self._data(i) / "ledgers").resolve()),
        }
        file = self.folder / f"bookie-{i}.conf"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main = ("org.apache.bookkeeper.server.Main", "--conf", str(file.resolve()))
        return Child(
            f"bookie-{i}",
            [str(find_java().path), *_JVM, "-cp", f"{LIB}/*", *main],
            log_path=self.folder / f"bookie-{i}.log",
        )

    def _data(self, i: int) -> Path:
        return self.folder / f"bookie-{i}"

    def settings(self) -> Mapping[str, str]:
        """Return what differs from BookKeeper's defaults."""
        return {**_SETTINGS, "JVM": HEAP}

    def index_bytes(self) -> int:
        """Return the size of the ledgers' index files (`SortedLedgerStorage`, the default)."""
        return sum(size_of(self._data(i) / "ledgers", "*.idx") for i in range(len(self.ports)))
