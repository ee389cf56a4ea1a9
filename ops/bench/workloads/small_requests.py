"""Unbatched small produce requests: what a request costs, not what a byte costs."""

from __future__ import annotations

from typing import Final

from ops.bench import topics
from ops.bench.figures import Figure, Meter, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.peers.system import System
from ops.bench.workloads.warm_up import warm_up

VALUE_BYTES: Final = 100


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure with each number of connections, all to the leader of one partition."""
    scale = run.scale
    await warm_up(system, run, "small")
    figures: list[Figure] = []
    for connections in scale.connections:
        topic = f"small-{connections}"
        await topics.create(system.bootstrap_servers, topic, 1)
        async with LoadProcess(
            "requests",
            servers=system.bootstrap_servers,
            topic=topic,
            value_bytes=VALUE_BYTES,
            connections=connections,
            warm_up_s=scale.warm_up_s,
            measure_s=scale.measure_s,
        ) as load:
            await load.event("begin")
            meter = Meter(system.pids(), system.broker_pids().values())
            end = await load.event("end")
            spent = meter.spent()
        plural = "" if connections == 1 else "s"
        figures += named(
            f"unbatched requests, {connections} connection{plural}",
            {
                "requests/s": end["requests"] / end["seconds"],
                "requests per CPU s": end["requests"] / max(spent.cpu_s, 0.01),
                "requests per broker CPU s": end["requests"] / max(spent.broker_cpu_s, 0.01),
                "p50 ms": end["p50_ms"],
                "p99 ms": end["p99_ms"],
            },
        )
    return figures
