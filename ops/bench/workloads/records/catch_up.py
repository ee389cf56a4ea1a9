"""Read what was written long ago, cold: how fast, and what a reader at the tail feels of it.

After the writing the whole system is stopped and started again and the kernel is asked to drop
its files from the page cache, so neither a broker's cache nor memory holds what is read first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final

from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.load.latency import tail_figures
from ops.bench.peers.system import System
from ops.bench.workloads.records.filling import fill
from ops.bench.workloads.records.fixed_rate import tail

PARTITIONS: Final = 4
VALUE_BYTES: Final = 1024
TAIL_RECORDS_PER_S: Final = 200.0
_OUTSTANDING_BYTES_MAX: Final = 4 << 20


def drop_from_page_cache(folder: Path) -> None:
    """Sync every file of a folder and ask the kernel to forget its pages."""
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # files come and go
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fdatasync(descriptor)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)


async def write_history(system: System, topic: str, size: int) -> int:
    """Write a topic of about `size` bytes of values; return the number of records."""
    return await fill(
        system,
        topic,
        size,
        value_bytes=VALUE_BYTES,
        outstanding_bytes_max=_OUTSTANDING_BYTES_MAX,
        partitions=PARTITIONS,
    )


async def cold(system: System, run: Run) -> None:
    """Restart a system on its data, with nothing of it in memory."""
    await system.stop()
    await asyncio.to_thread(drop_from_page_cache, system.data_folder())
    await run.memory_filled()
    await system.start()


async def read(system: System, topic: str, records: int, groups: int) -> tuple[float, float, int]:
    """Let groups read a topic at once; return (begin s, end s, bytes of all of them)."""
    async with contextlib.AsyncExitStack() as open_readers:
        readers = [
            await open_readers.enter_async_context(
                LoadProcess(
                    "read",
                    servers=system.bootstrap_servers,
                    topic=topic,
                    partitions=PARTITIONS,
                    records=records,
                    group=f"catch-up-{i}",
                )
            )
            for i in range(groups)
        ]
        for reader in readers:
            await reader.event("ready")
        for reader in readers:
            reader.say("go")
        ends = [await reader.event("done") for reader in readers]
    return (
        min(end["begin_s"] for end in ends),
        max(end["end_s"] for end in ends),
        sum(end["value_bytes"] for end in ends),
    )


async def _alone(system: System, run: Run, topic: str, records: int, groups: int) -> float:
    await cold(system, run)
    begin_s, end_s, size = await read(system, topic, records, groups)
    return size / (end_s - begin_s) / 1e6


async def _beside_a_tail(system: System, run: Run, topic: str, records: int) -> dict[str, float]:
    """Return the tail reader's p99 before and during a catch-up by one group."""
    await cold(system, run)
    await topics.create(system.bootstrap_servers, "tail", 1)
    span = [0.0, 0.0]

    async def catch_up() -> None:
        await asyncio.sleep(run.scale.warm_up_s + run.scale.tail_s)
        span[0], span[1], _ = await read(system, topic, records, 1)

    arrivals = await tail(system, "tail", TAIL_RECORDS_PER_S, catch_up())
    begin_s, end_s = span
    return tail_figures(arrivals, begin_s - run.scale.tail_s, begin_s, end_s)


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure each number of groups, then one beside a tail reader."""
    topic = "catch-up"
    records = await write_history(system, topic, run.scale.catch_up_bytes)
    figures: list[Figure] = []
    for groups in run.scale.catch_up_groups:
        mb_per_s = await _alone(system, run, topic, records, groups)
        plural = "" if groups == 1 else "s"
        figures += named(f"catch-up read, {groups} group{plural}", {"MB/s": mb_per_s})
    beside = await _beside_a_tail(system, run, topic, records)
    return [*figures, *named("catch-up read beside a tail reader", beside)]
