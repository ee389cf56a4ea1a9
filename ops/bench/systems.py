"""Which systems a workload is measured on, and how each is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ops.bench.peers import bookkeeper, kafka
from ops.bench.peers.bookies import QuireBookies
from ops.bench.peers.bookkeeper import JavaBookies
from ops.bench.peers.kafka import KafkaSystem
from ops.bench.peers.quire import QuireSystem
from ops.bench.peers.secured import SecuredTurn
from ops.bench.peers.system import SystemName
from ops.bench.report.summary import HARDWARE
from ops.bench.workloads.storage import ledgers

Make = Callable[[Path], Any]
"""Makes a system that lives in a folder: a `Measurable`, of the kind that the workload needs."""

ALIKE_IN_SHORT: Final = {"brokers": "synced brokers", "unsynced brokers": "synced brokers"}
"""Kinds whose systems are those of another kind in a short run, which starts them once for both."""


class Machine:
    """The machine itself, on which nothing runs."""

    about = SystemName(HARDWARE, "as each measure says")

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def start(self) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True)

    async def stop(self) -> None:
        """Nothing runs."""

    def pids(self) -> Sequence[int]:
        """Return none."""
        return []

    def data_folder(self) -> Path:
        """Return the folder on the measured disk."""
        return self._folder

    def settings(self) -> Mapping[str, str]:
        """Return none."""
        return {}


def _brokers(
    *, peers: bool, synced: bool = True, unsynced: bool = False, restarts: bool = False
) -> dict[str, Make]:
    makers: dict[str, Make] = {"quire": lambda folder: QuireSystem(folder, restarts=restarts)}
    if peers and kafka.is_installed():
        if synced:
            makers["kafka, synced"] = lambda folder: KafkaSystem(folder, synced=True)
        if unsynced:
            makers["kafka, defaults"] = lambda folder: KafkaSystem(folder, synced=False)
    return makers


def _bookies(count: int, *, peers: bool) -> dict[str, Make]:
    makers: dict[str, Make] = {"quire": lambda folder: QuireBookies(folder, count)}
    if peers and bookkeeper.is_installed():
        makers[bookkeeper.NAME] = lambda folder: JavaBookies(folder, count)
    return makers


def systems(kind: str, *, peers: bool, short: bool) -> dict[str, Make]:
    """Return how each system is made, in the order of their turns; peers if they are there.

    `kind`: one of the catalogue's `SYSTEMS`.
    """
    if kind == "machine":
        return {HARDWARE: Machine}
    if kind == "bookies":
        return _bookies(ledgers.BOOKIES, peers=peers)
    if kind == "open and secured":
        return {"quire": SecuredTurn}
    if kind == "bookie":
        return _bookies(1, peers=peers)
    # With and without sync Kafka reads, idles and changes leaders alike: once is enough for both.
    if kind == "unsynced brokers" and not short:  # what must be written first is written sooner
        return _brokers(peers=peers, synced=False, unsynced=True)
    unsynced = kind == "brokers" and not short
    return _brokers(peers=peers, unsynced=unsynced, restarts=kind == "restarting brokers")


def missing(kinds: Sequence[str]) -> list[str]:
    """Return the peers that these kinds of systems have and that are not installed."""
    found = []
    if any("brokers" in kind for kind in kinds) and not kafka.is_installed():
        found.append("Apache Kafka")
    if any("bookie" in kind for kind in kinds) and not bookkeeper.is_installed():
        found.append("Apache BookKeeper")
    return found
