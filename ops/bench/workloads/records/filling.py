"""Topics that are written before something else begins.

Before it is measured a system does enough of the same for its code to be compiled: a JVM compiles
what it runs often while it runs, and three of them on two cores need most of a minute for that.
Kafka that has just been started takes in a quarter of what it does a minute later. Four seconds
before each case are not enough, so every system first gets `warm_up`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ops.bench import topics
from ops.bench.figures import Run
from ops.bench.load.channel import LoadProcess
from ops.bench.peers.system import System
from ops.bench.workloads.records.produce_sizes import BATCHES, RATE_VALUE_BYTES


async def fill(
    system: System,
    topic: str,
    size: int,
    *,
    value_bytes: int,
    outstanding_bytes_max: int,
    partitions: int = 1,
    settings: Mapping[str, Any] | None = None,
    seconds_max: float = float("inf"),
) -> int:
    """Create a topic and write about `size` bytes of values to it; return how many records.

    `settings` are the producer's; after `seconds_max` it is enough in any case.
    """
    await topics.create(system.bootstrap_servers, topic, partitions)
    async with LoadProcess(
        "produce",
        servers=system.bootstrap_servers,
        topic=topic,
        partitions=partitions,
        value_bytes=value_bytes,
        settings=dict(settings or {}),
        outstanding_bytes_max=outstanding_bytes_max,
        fill_bytes=size,
        fill_s_max=seconds_max,
    ) as load:
        await load.event("ready")
        load.say("go")
        records: int = (await load.event("done"))["records"]
    return records


async def warm_up(system: System, run: Run, workload: str) -> None:
    """Produce batches of each size, this many bytes or this long, whichever ends first."""
    scale = run.scale
    for i, settings in enumerate(BATCHES.values()):
        await fill(
            system,
            f"{workload}-warm-up-{i}",
            scale.start_warm_up_bytes,
            value_bytes=RATE_VALUE_BYTES,
            outstanding_bytes_max=scale.outstanding_bytes_max,
            settings=settings,
            seconds_max=scale.start_warm_up_s,
        )
