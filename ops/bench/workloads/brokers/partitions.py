"""Many partitions: what it takes to make them, to hold them while nothing happens, and to start.

Each has one record, so that it is in use. The start ends when each has taken one more.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.peers.system import System
from ops.bench.process_cpu import cpu_s, resident_bytes
from ops.bench.report.summary import QUIRE

PER_TOPIC: Final = 1_000
_RESTART_PAUSE_S: Final = 1.0
PEER_PARTITIONS_MAX: Final = 1_000
"""More are measured on Quire alone: with 10,000, three Kafka nodes on two cores did not serve
within two minutes of their start in four of five rounds."""
_SETTLES: Final = 3
"""Warm-up times between the last record and the idle span."""


def wanted(partitions: int) -> dict[str, int]:
    """Return the topics that make up this many partitions."""
    full, rest = divmod(partitions, PER_TOPIC)
    found = {f"many-{partitions}-{i}": PER_TOPIC for i in range(full)}
    return {**found, f"many-{partitions}-rest": rest} if rest else found


async def held(system: System, run: Run, partitions: int) -> dict[str, float]:
    """Make partitions and restart on them; return the figures."""
    chosen = wanted(partitions)
    began_s = time.monotonic()
    await topics.create_all(system.bootstrap_servers, chosen)
    created_s = time.monotonic() - began_s
    first_s = await topics.write_to_all(system.bootstrap_servers, chosen)

    await asyncio.sleep(_SETTLES * run.scale.warm_up_s)
    began_s, began_cpu_s = time.monotonic(), cpu_s(system.pids())
    await asyncio.sleep(run.scale.measure_s)
    idle_cores = (cpu_s(system.pids()) - began_cpu_s) / (time.monotonic() - began_s)
    resident = sum(map(resident_bytes, system.pids()))

    await system.stop()
    await asyncio.sleep(_RESTART_PAUSE_S)
    began_s = time.monotonic()
    await system.start()
    await topics.write_to_all(system.bootstrap_servers, chosen)
    started_s = time.monotonic() - began_s
    return {
        "time to create s": created_s,
        "first record in all s": first_s,
        "memory MB": resident / 1e6,
        "idle CPU cores": idle_cores,
        "start until all take records s": started_s,
    }


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure each number of partitions; the topics of the one before are deleted first."""
    figures: list[Figure] = []
    for partitions in run.scale.partition_counts:
        if partitions > PEER_PARTITIONS_MAX and system.about.name != QUIRE:
            continue
        if figures:
            await topics.delete_all(system.bootstrap_servers)
        found = await held(system, run, partitions)
        figures += named(f"partitions, {partitions:,}", found)
    return figures
