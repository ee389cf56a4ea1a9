"""kill -9 of the broker that leads: how long until each of its partitions takes writes again.

The broker stays dead, so a system is measured once and must be made anew for the next figure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Final

from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.peers.system import System
from ops.bench.spread import percentile

_INTERVAL_S: Final = {1: 0.002}
_INTERVAL_OF_MANY_S: Final = 0.1
"""Between an acknowledgement and the next record of a partition: the resolution of the figures."""
_RESTART_PAUSE_S: Final = 1.0


async def kill_leader(system: System, partitions: int, warm_up_s: float) -> list[float]:
    """Kill the leader of partition 0; return the seconds until each partition it led was back."""
    topic = f"failover-{partitions}"
    await topics.create(system.bootstrap_servers, topic, partitions)
    async with LoadProcess(
        "failover",
        servers=system.bootstrap_servers,
        topic=topic,
        partitions=partitions,
        interval_s=_INTERVAL_S.get(partitions, _INTERVAL_OF_MANY_S),
        warm_up_s=warm_up_s,
    ) as load:
        await load.event("ready")
        load.say("go")
        await load.event("warm")
        leaders = await topics.leaders(system.bootstrap_servers, topic)
        victim = leaders[0]
        killed_s = time.monotonic()
        os.kill(system.broker_pids()[victim], signal.SIGKILL)
        load.say(f"killed {killed_s} {time.monotonic()}")
        back_s: list[float] = (await load.event("done"))["back_s"]
    return sorted(back_s[i] for i, leader in leaders.items() if leader == victim)


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure each number of partitions; between them the system is restarted whole."""
    figures: list[Figure] = []
    for i, partitions in enumerate(run.scale.failover_partitions):
        if i:
            await system.stop()
            await asyncio.sleep(_RESTART_PAUSE_S)
            await system.start()
        back_s = await kill_leader(system, partitions, run.scale.warm_up_s)
        plural = "" if partitions == 1 else "s"
        figures += named(
            f"kill -9 of the leader, {partitions:,} partition{plural}",
            {
                "partitions led": float(len(back_s)),
                "p50 ms": percentile(back_s, 0.5) * 1e3,
                "p99 ms": percentile(back_s, 0.99) * 1e3,
                "all served ms": back_s[-1] * 1e3,
            },
        )
    return figures
