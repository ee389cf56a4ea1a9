"""What a system does before it is measured: enough of the same for its code to be compiled.

A JVM compiles what it runs often while it runs, and three of them on two cores need most of a
minute for that: Kafka that has just been started takes in a quarter of what it does a minute
later. Four seconds before each case are not enough, so every system first gets this.
"""

from __future__ import annotations

from ops.bench import topics
from ops.bench.figures import Run
from ops.bench.load.channel import LoadProcess
from ops.bench.peers.system import System
from ops.bench.workloads.produce_sizes import BATCHES, RATE_VALUE_BYTES


async def warm_up(system: System, run: Run, workload: str) -> None:
    """Produce batches of each size, so many bytes or so long, whichever ends first."""
    scale = run.scale
    for i, settings in enumerate(BATCHES.values()):
        topic = f"{workload}-warm-up-{i}"
        await topics.create(system.bootstrap_servers, topic, 1)
        async with LoadProcess(
            "produce",
            servers=system.bootstrap_servers,
            topic=topic,
            partitions=1,
            value_bytes=RATE_VALUE_BYTES,
            settings=settings,
            outstanding_bytes_max=scale.outstanding_bytes_max,
            fill_bytes=scale.start_warm_up_bytes,
            fill_s_max=scale.start_warm_up_s,
        ) as load:
            await load.event("ready")
            load.say("go")
            await load.event("done")
