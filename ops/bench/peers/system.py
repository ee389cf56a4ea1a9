"""What the benchmark asks of a system it measures, whichever it is.

A system has three brokers or some bookies on this machine and lives in a folder; `stop` and
`start` again is a cold restart on the same data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from client.errors import QuireError

BROKERS = 3
REPLICAS = 3


class PeerError(QuireError):
    """A system under test did not start, or did not do what a workload needs."""


class SystemName(NamedTuple):
    """A system as results name it, and what its acknowledgement means."""

    name: str
    durability: str


class Measurable(Protocol):
    """Something that can be started, measured and stopped."""

    about: SystemName

    async def start(self) -> None:
        """Start on the folder's data, which may be empty. Raises QuireError."""

    async def stop(self) -> None:
        """Stop every process. The data stays."""

    def pids(self) -> Sequence[int]:
        """Return every process that does the system's work, metadata servers too."""

    def data_folder(self) -> Path:
        """Return where all its data lies."""

    def settings(self) -> Mapping[str, str]:
        """Return what is set otherwise than by default, for the results."""


class System(Measurable, Protocol):
    """A cluster of brokers that can be measured and hurt."""

    bootstrap_servers: str
    compacted_copies: int
    """How many copies of a compacted topic are compacted, each by a broker of its own."""

    async def is_compacted(self, topic: str) -> bool:
        """Tell whether all of a compacted topic's only partition is compacted that may be."""

    def broker_pids(self) -> Mapping[int, int]:
        """Return the process id of each broker, by its id."""

    async def hand_over(self, broker: int) -> None:
        """Let a broker give its partitions away, as before maintenance. Raises QuireError."""

    async def hand_back(self, broker: int) -> None:
        """Let it have partitions again. Raises QuireError."""

    async def rolling_restart(self) -> None:
        """Restart every process that serves, one after the other. Raises QuireError."""


class BookieSystem(Measurable, Protocol):
    """Bookies, and a ZooKeeper server of their own."""

    zookeeper: str
    """host:port."""
    ports: Sequence[int]
    """Of the bookies."""

    def bookie_pids(self) -> Sequence[int]:
        """Return the process id of each bookie."""

    def index_bytes(self) -> int:
        """Return the bytes on disk of what bookies find entries by."""

    async def end_bookie(self, signal_number: int) -> None:
        """End the first bookie by a signal, and its registration with it."""

    async def revive_bookie(self) -> None:
        """Start the first bookie's process again; return without waiting until it serves."""

    async def registered(self) -> None:
        """Wait until all bookies are registered. Raises PeerError."""
