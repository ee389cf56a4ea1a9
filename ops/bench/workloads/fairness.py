"""One partition that is written as fast as it goes, beside many with a record a second each.

What the busy one does to the latency of the others' acknowledgements: measured alone first, then
beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.load.latency import latencies_ms
from ops.bench.peers.system import System
from ops.bench.workloads.filling import warm_up

_QUIET: Final = "quiet"
_BUSY: Final = "busy"
_VALUE_BYTES: Final = 1024
_INTERVAL_S: Final = 1.0
_SETTINGS: Final = {"linger.ms": 5, "batch.size": 1 << 20, "batch.num.messages": 1_000_000}


async def _trickle(
    system: System, partitions: int, warm_up_s: float, meanwhile: Awaitable[Any]
) -> tuple[dict[str, float], Any]:
    """Write to the quiet partitions until `meanwhile` is over; return latencies and its result."""
    async with LoadProcess(
        "trickle",
        servers=system.bootstrap_servers,
        topic=_QUIET,
        partitions=partitions,
        value_bytes=_VALUE_BYTES,
        interval_s=_INTERVAL_S,
    ) as writer:
        await writer.event("ready")
        writer.say("go")
        result = await meanwhile
        writer.say("stop")
        arrivals = (await writer.event("arrived"))["arrivals"]
    begin_s = min(due_s for due_s, _ in arrivals) + warm_up_s
    return latencies_ms(arrivals, begin_s, float("inf")), result


async def _busy(system: System, run: Run, seconds: float) -> float:
    """Produce to the busy partition for so long; return bytes/s."""
    async with LoadProcess(
        "produce",
        servers=system.bootstrap_servers,
        topic=_BUSY,
        partitions=1,
        value_bytes=_VALUE_BYTES,
        settings=_SETTINGS,
        outstanding_bytes_max=run.scale.outstanding_bytes_max,
        warm_up_s=run.scale.warm_up_s,
        measure_s=seconds,
    ) as load:
        await load.event("ready")
        load.say("go")
        await load.event("begin")
        end = await load.event("end")
        await load.event("done")
        return float(end["records"]) * _VALUE_BYTES / float(end["seconds"])


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure the quiet partitions alone, and beside the busy one."""
    scale = run.scale
    await warm_up(system, run, "fairness")
    await topics.create_all(system.bootstrap_servers, {_QUIET: scale.fairness_partitions, _BUSY: 1})
    seconds = scale.warm_up_s + scale.fairness_s
    await run.memory_filled()
    count = scale.fairness_partitions
    alone, _ = await _trickle(system, count, scale.warm_up_s, asyncio.sleep(seconds))
    beside, busy = await _trickle(
        system, count, scale.warm_up_s, _busy(system, run, scale.fairness_s)
    )
    return named(
        f"fairness, {count} partitions with a record a second each beside a busy one",
        {
            "p50 alone ms": alone["p50"],
            "p99 alone ms": alone["p99"],
            "p50 beside ms": beside["p50"],
            "p99 beside ms": beside["p99"],
            "p99 beside per p99 alone": beside["p99"] / alone["p99"],
            "busy MB/s": busy / 1e6,
        },
    )
