"""What a system does before it is measured: enough of the same for its code to be compiled.

A JVM compiles what it runs often while it runs, and three of them on two cores need most of a
minute for that: Kafka that has just been started takes in a quarter of what it does a minute
later. Four seconds before each case are not enough, so every system first gets this.
"""

from __future__ import annotations

from ops.bench.figures import Run
from ops.bench.peers.system import System
from ops.bench.workloads.filling import fill
from ops.bench.workloads.produce_sizes import BATCHES, RATE_VALUE_BYTES


async def warm_up(system: System, run: Run, workload: str) -> None:
    """Produce batches of each size, so many bytes or so long, whichever ends first."""
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
