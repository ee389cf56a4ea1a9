"""Produce requests that were made before: small ones, whose cost is a request's, and large ones.

The generator has nothing to do but send. So the large ones tell what brokers take of records that
keep librdkafka busier than them.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from ops.bench import topics
from ops.bench.figures import Figure, Run, Spent, named
from ops.bench.load.channel import LoadProcess
from ops.bench.load.metered import metered
from ops.bench.peers.system import System
from ops.bench.workloads.records import produce
from ops.bench.workloads.records.filling import warm_up
from ops.bench.workloads.records.produce_sizes import BATCHES

VALUE_BYTES: Final = 100
LARGE: Final = "1 MB batches"
_FRAMING_BYTES_MAX: Final = 12
"""Around a value in a batch."""
_LARGE_IN_FLIGHT: Final = 5
"""On a connection to a leader; what the Java producer has under way."""


async def _run(
    system: System, run: Run, topic: str, partitions: int, **arguments: int
) -> tuple[dict[str, Any], Spent]:
    """Send requests to a new topic; return what the load says at the end, and what it cost."""
    await run.memory_filled()
    await topics.create(system.bootstrap_servers, topic, partitions)
    async with LoadProcess(
        "requests",
        servers=system.bootstrap_servers,
        topic=topic,
        warm_up_s=run.scale.warm_up_s,
        measure_s=run.scale.measure_s,
        **arguments,
    ) as load:
        return await metered(load, system.pids(), system.broker_pids().values())


async def _small(system: System, run: Run, connections: int) -> list[Figure]:
    """Measure one record per request, one request under way on each connection."""
    end, spent = await _run(
        system, run, f"small-{connections}", 1, value_bytes=VALUE_BYTES, connections=connections
    )
    plural = "" if connections == 1 else "s"
    return named(
        f"unbatched requests, {connections} connection{plural}",
        {
            "requests/s": end["requests"] / end["seconds"],
            "requests per CPU s": end["requests"] / max(spent.cpu_s, 0.01),
            "requests per broker CPU s": end["requests"] / max(spent.broker_cpu_s, 0.01),
            "p50 ms": end["p50_ms"],
            "p99 ms": end["p99_ms"],
        },
    )


async def _large(system: System, run: Run, value_bytes: int, partitions: int) -> list[Figure]:
    """Measure large batches of small records, over one connection to each leader."""
    records = BATCHES[LARGE]["batch.size"] // (value_bytes + _FRAMING_BYTES_MAX)
    end, spent = await _run(
        system, run, f"large-{value_bytes}-{partitions}", partitions,
        value_bytes=value_bytes, records=records, connections=1, in_flight=_LARGE_IN_FLIGHT,
    )  # fmt: skip
    workload = produce.label(value_bytes, partitions, f"ready-made {LARGE}")
    return produce.figures_of(workload, value_bytes, end["requests"] * records, end, spent)


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure small ones with each number of connections, all to the leader of one partition, then
    large ones."""
    scale = run.scale
    await warm_up(system, run, "requests")
    figures: list[Figure] = []
    for connections in scale.connections:
        figures += await _small(system, run, connections)
    for value_bytes, partitions in itertools.product(
        scale.ready_made_values, scale.produce_partitions
    ):
        figures += await _large(system, run, value_bytes, partitions)
    return figures
