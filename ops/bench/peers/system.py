"""What the benchmark asks of a system it measures, whichever it is.

A system has three brokers on this machine and lives in a folder; `stop` and `start` again is a
cold restart on the same data.
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


class System(Protocol):
    """A cluster that can be started, measured, hurt and stopped."""

    about: SystemName
    bootstrap_servers: str

    async def start(self) -> None:
        """Start on the folder's data, which may be empty. Raises QuireError."""

    async def stop(self) -> None:
        """Stop every process. The data stays."""

    def broker_pids(self) -> Mapping[int, int]:
        """Return the process id of each broker, by its id."""

    def pids(self) -> Sequence[int]:
        """Return every process that does the system's work, metadata servers too."""

    def data_folder(self) -> Path:
        """Return where all its data lies."""

    def settings(self) -> Mapping[str, str]:
        """Return what is set otherwise than by default, for the results."""
