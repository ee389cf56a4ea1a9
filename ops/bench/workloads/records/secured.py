"""What TLS and logins cost: the same loads on a cluster in plain text and on secured ones.

Measured is the CPU of all servers: for each GB that is produced, and for each small request. The
three clusters have their turns within one turn of Quire, so each round yields ratios.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.load.metered import metered
from ops.bench.peers.quire import QuireSystem
from ops.bench.peers.secured import Links, SecuredTurn
from ops.bench.workloads.records.produce_sizes import BATCHES

_VALUE_BYTES: Final = 1024
_SMALL_VALUE_BYTES: Final = 100
_CPU_S_MIN: Final = 0.01
"""The step of the clock of processes."""


class Cost(NamedTuple):
    """What one load came to on one cluster."""

    rate: str
    """What `per_s` counts, with its unit."""
    per_s: float
    unit: str
    """What the CPU is for."""
    cpu: float
    """Of all servers: seconds for each GB, or microseconds for each request."""


Costs = Mapping[str, Cost]
"""By the name of the load."""


async def _produce(system: QuireSystem, run: Run, batches: str) -> Cost:
    scale, topic = run.scale, f"produce-{batches.replace(' ', '-')}"
    await run.memory_filled()
    await topics.create(system.bootstrap_servers, topic, 1, properties=system.client_properties)
    async with LoadProcess(
        "produce",
        servers=system.bootstrap_servers,
        topic=topic,
        partitions=1,
        value_bytes=_VALUE_BYTES,
        settings=BATCHES[batches],
        outstanding_bytes_max=scale.outstanding_bytes_max,
        warm_up_s=scale.warm_up_s,
        measure_s=scale.measure_s,
        properties=system.client_properties,
    ) as load:
        await load.event("ready")
        load.say("go")
        end, spent = await metered(load, system.pids())
        await load.event("done")
    size = end["records"] * _VALUE_BYTES
    cpu_s = max(spent.cpu_s, _CPU_S_MIN)
    return Cost("MB/s", size / end["seconds"] / 1e6, "CPU s per GB", cpu_s / size * 1e9)


async def _small(system: QuireSystem, run: Run, connections: int) -> Cost:
    topic = f"small-{connections}"
    await run.memory_filled()
    await topics.create(system.bootstrap_servers, topic, 1, properties=system.client_properties)
    async with LoadProcess(
        "requests",
        servers=system.bootstrap_servers,
        topic=topic,
        value_bytes=_SMALL_VALUE_BYTES,
        connections=connections,
        warm_up_s=run.scale.warm_up_s,
        measure_s=run.scale.measure_s,
        properties=system.client_properties,
    ) as load:
        end, spent = await metered(load, system.pids())
    cpu_s = max(spent.cpu_s, _CPU_S_MIN)
    per_s = end["requests"] / end["seconds"]
    return Cost("requests/s", per_s, "CPU µs per request", cpu_s / end["requests"] * 1e6)


async def _costs(system: QuireSystem, run: Run) -> Costs:
    costs = {
        f"produce {_VALUE_BYTES} B, 1 partition, {batches}": await _produce(system, run, batches)
        for batches in BATCHES
    }
    for connections in run.scale.connections:
        plural = "" if connections == 1 else "s"
        label = f"unbatched requests, {connections} connection{plural}"
        costs[label] = await _small(system, run, connections)
    return costs


def figures_of(found: Mapping[Links, Costs]) -> list[Figure]:
    """Return the figures of secured clusters, each beside those in plain text."""
    figures: list[Figure] = []
    plain = found[Links.NONE]
    for links, costs in found.items():
        if links is Links.NONE:
            continue
        for label, cost in costs.items():
            base = plain[label]
            values: dict[str, Any] = {
                cost.rate: cost.per_s,
                f"in plaintext {cost.rate}": base.per_s,
                cost.unit: cost.cpu,
                f"in plaintext {cost.unit}": base.cpu,
                f"{cost.unit}, times plaintext's": cost.cpu / base.cpu,
            }
            figures += named(f"{links.value}: {label}", values)
    return figures


async def measure(system: SecuredTurn, run: Run) -> list[Figure]:
    """Measure each cluster in turn."""
    found: dict[Links, Costs] = {}
    for links in Links:
        async with system.opened(links) as quire:
            found[links] = await _costs(quire, run)
    return figures_of(found)
