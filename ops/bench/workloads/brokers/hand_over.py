"""Planned moves under load: how long a produce waits for one broker's leave, and for all restarts.

Quire's broker is unloaded and goes on running; Kafka's is stopped under control, which is what its
operators do. Handing back is the other way. A rolling restart is `quire restart` over bookies and
brokers, and for Kafka node by node, each when the replicas of the one before are in sync.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.peers.system import PeerError, System

_INTERVAL_S: Final = {1: 0.002}
_INTERVAL_OF_MANY_S: Final = 0.05
"""Between an acknowledgement and the next record of a partition: the resolution of the figures."""
_MOVE_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.05


async def until_led(system: System, topic: str, broker: int, *, at_all: bool) -> None:
    """Wait until a broker leads some partition of a topic, or none, and all have a leader."""
    deadline_s = time.monotonic() + _MOVE_TIMEOUT_S
    while True:
        found = (await topics.leaders(system.bootstrap_servers, topic)).values()
        if min(found) >= 0 and (broker in found) == at_all:
            return
        if time.monotonic() > deadline_s:
            wrong = "leads no partition" if at_all else "still leads partitions"
            raise PeerError(f"broker {broker} {wrong} of {topic}, led by {sorted(found)}")
        await asyncio.sleep(_POLL_S)


async def _longest_ms(load: LoadProcess) -> float:
    """Return the longest pause of any partition since the last time."""
    load.say("mark")
    return float(max((await load.event("pauses"))["pauses_s"]) * 1e3)


async def moves(system: System, run: Run, topic: str, load: LoadProcess) -> dict[str, float]:
    """Hand over, hand back, restart everything; return the longest pause of each in ms."""
    pauses: dict[str, float] = {}
    await asyncio.sleep(run.scale.warm_up_s)
    pauses["nothing moves"] = await _longest_ms(load)

    leaders = await topics.leaders(system.bootstrap_servers, topic)
    await system.hand_over(leaders[0])
    await until_led(system, topic, leaders[0], at_all=False)
    await asyncio.sleep(run.scale.settle_s)
    pauses["planned hand-over"] = await _longest_ms(load)

    await system.hand_back(leaders[0])
    await until_led(system, topic, leaders[0], at_all=True)
    await asyncio.sleep(run.scale.settle_s)
    pauses["hand-back"] = await _longest_ms(load)

    await system.rolling_restart()
    await asyncio.sleep(run.scale.settle_s)
    pauses["rolling restart"] = await _longest_ms(load)
    return pauses


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure with each number of partitions."""
    figures: list[Figure] = []
    for partitions in run.scale.hand_over_partitions:
        topic = f"hand-over-{partitions}"
        await topics.create(system.bootstrap_servers, topic, partitions)
        async with LoadProcess(
            "pauses",
            servers=system.bootstrap_servers,
            topic=topic,
            partitions=partitions,
            interval_s=_INTERVAL_S.get(partitions, _INTERVAL_OF_MANY_S),
            warm_up_s=run.scale.warm_up_s,
        ) as load:
            await load.event("ready")
            load.say("go")
            await load.event("warm")
            pauses = await moves(system, run, topic, load)
            load.say("stop")
            await load.event("done")
        plural = "" if partitions == 1 else "s"
        for what, pause_ms in pauses.items():
            workload = f"pause: {what}, {partitions:,} partition{plural}"
            figures += named(workload, {"longest pause ms": pause_ms})
    return figures
