"""All attacks, and the clusters that they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.hostile.attacks import (
    alike,
    bookie_doors,
    bookies,
    found,
    registry,
    secured,
    secured_cluster,
)
from tests.integration import memory_crowd
from tests.integration.cluster import LocalCluster

ATTACKS: Final = (
    *found.ATTACKS,
    *alike.ATTACKS,
    *bookies.ATTACKS,
    *registry.ATTACKS,
    *secured.ATTACKS,
    *bookie_doors.ATTACKS,
)

CLUSTERS: Final[Mapping[str, Callable[[Path], LocalCluster]]] = {
    "plain": lambda folder: LocalCluster(folder, brokers=1),
    "two brokers": lambda folder: LocalCluster(folder, brokers=2),
    "small": lambda folder: LocalCluster(folder, brokers=1, environ=memory_crowd.environ(1_000)),
    "secured": secured_cluster.make,
}
"""Kind -> how it is made: the defaults, small limits as of `memory_crowd`, TLS and logins."""
