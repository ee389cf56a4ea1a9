"""Topics that are written before something else begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ops.bench import topics
from ops.bench.load.channel import LoadProcess
from ops.bench.peers.system import System


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
