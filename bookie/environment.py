"""What a bookie gets from outside: its disks, the metadata store, time, randomness and the loop.

Nothing of it is global, so several bookies, or one on a simulated loop, live in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from bookie.storage.ledger_directory import Directory
from client.histogram import Stopwatch, loop_time
from client.ids import Clock, Rng
from client.metadata.store import MetadataStore


class Environment(NamedTuple):
    """The machine and the cluster, as one bookie sees them."""

    store: MetadataStore
    directories: Sequence[Directory]
    clock: Clock
    rng: Rng
    loop: asyncio.AbstractEventLoop
    stopwatch: Stopwatch = loop_time
    """What durations are measured by."""
