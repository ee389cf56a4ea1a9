"""Produce as fast as it goes: what a system takes in, and what a gigabyte of it costs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

from ops.bench import topics
from ops.bench.figures import Figure, Run, Spent, named, peak_bytes
from ops.bench.load.channel import LoadProcess
from ops.bench.load.metered import metered
from ops.bench.peers.system import REPLICAS, System
from ops.bench.workloads.records.filling import warm_up
from ops.bench.workloads.records.produce_sizes import BATCHES, RATE_VALUE_BYTES

NAME: Final = "produce"


def label(value_bytes: int, partitions: int, batches: str) -> str:
    """Name one row."""
    plural = "" if partitions == 1 else "s"
    return f"produce {value_bytes} B, {partitions} partition{plural}, {batches}"


RATE_ROWS: Final = frozenset(label(RATE_VALUE_BYTES, 1, batches) for batches in BATCHES)
"""Whose records/s the fixed rates are shares of."""


def figures_of(
    workload: str, value_bytes: int, records: int, end: Mapping[str, Any], spent: Spent
) -> list[Figure]:
    """Return the figures of one row: `end` has what the load says at the end of its span."""
    per_s, size = records / end["seconds"], records * value_bytes
    return named(
        workload,
        {
            "MB/s": per_s * value_bytes / 1e6,
            "records/s": per_s,
            "CPU s per GB": spent.cpu_s / size * 1e9,
            "disk bytes per byte and replica": spent.written_bytes / size / REPLICAS,
            "generator CPU share": end["cpu_s"] / end["seconds"],
        },
    )


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure every combination of sizes."""
    scale = run.scale
    await warm_up(system, run, NAME)
    figures: list[Figure] = []
    combinations = itertools.product(scale.produce_values, scale.produce_partitions, BATCHES)
    for i, (value_bytes, partitions, batches) in enumerate(combinations):
        topic = f"produce-{i}"
        await run.memory_filled()
        await topics.create(system.bootstrap_servers, topic, partitions)
        async with LoadProcess(
            "produce",
            servers=system.bootstrap_servers,
            topic=topic,
            partitions=partitions,
            value_bytes=value_bytes,
            settings=BATCHES[batches],
            outstanding_bytes_max=scale.outstanding_bytes_max,
            warm_up_s=scale.warm_up_s,
            measure_s=scale.measure_s,
        ) as load:
            await load.event("ready")
            load.say("go")
            end, spent = await metered(load, system.pids())
            await load.event("done")
        workload = label(value_bytes, partitions, batches)
        figures += figures_of(workload, value_bytes, end["records"], end, spent)
    return [*figures, Figure(NAME, "peak memory MB", peak_bytes(system) / 1e6)]
