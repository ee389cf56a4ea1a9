"""Produce at a fixed rate, and how late a consumer has each record: latency end to end."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final

from client.errors import QuireError
from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.load.latency import latencies_ms
from ops.bench.peers.system import System
from ops.bench.report.summary import Measured
from ops.bench.workloads.records.filling import warm_up
from ops.bench.workloads.records.produce import RATE_ROWS
from ops.bench.workloads.records.produce_sizes import RATE_VALUE_BYTES

LINGER_MS: Final = 5
"""librdkafka's and the Java producer's default: part of every latency."""
UNITS: Final = {"p50": "p50 ms", "p99": "p99 ms", "p99_9": "p99.9 ms"}


def learn(run: Run, measured: Iterable[Measured]) -> None:
    """Note what `produce` found: in this run, or in the results that are there from before."""
    found: dict[str, list[float]] = {}
    for system, _, figure in measured:
        if figure.workload in RATE_ROWS and figure.measure == "records/s":
            found.setdefault(system, []).append(figure.value)
    run.maxima_per_s.update(found)


def slowest_per_s(run: Run) -> float:
    """Return the maximum of the slowest system: the median of its rounds."""
    if not run.maxima_per_s:
        raise QuireError("fixed rates are shares of what `produce` found: measure it first")
    return min(statistics.median(values) for values in run.maxima_per_s.values())


async def tail(
    system: System,
    topic: str,
    records_per_s: float,
    meanwhile: Awaitable[object],
    *,
    linger_ms: int = LINGER_MS,
) -> list[tuple[float, float]]:
    """Produce at a rate to a topic and read it until `meanwhile` is over.

    Returns (due s, latency ms) of each record.
    """
    servers = system.bootstrap_servers
    async with (
        LoadProcess("latency", servers=servers, topic=topic) as reader,
        LoadProcess(
            "paced",
            servers=servers,
            topic=topic,
            value_bytes=RATE_VALUE_BYTES,
            records_per_s=records_per_s,
            linger_ms=linger_ms,
        ) as writer,
    ):
        await reader.event("ready")
        await writer.event("ready")
        writer.say("go")
        await meanwhile
        writer.say("stop")
        await writer.event("done")
        return [(due_s, late) for due_s, late in (await reader.event("arrived"))["arrivals"]]


def cases(shares: Sequence[float]) -> list[tuple[float, int]]:
    """Return shares of the maximum, and how long batches wait for records: less at the last."""
    return [*((share, LINGER_MS) for share in shares), *((shares[-1], ms) for ms in (1, 0))]


def label(share: float, linger_ms: int) -> str:
    """Name one row."""
    told = "" if linger_ms == LINGER_MS else f", linger.ms={linger_ms}"
    return f"latency at {share:.0%} of the slower maximum{told}"


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure each share of the slowest system's maximum."""
    scale = run.scale
    seconds = scale.warm_up_s + scale.measure_s
    most_per_s = slowest_per_s(run)
    await warm_up(system, run, "fixed")
    figures: list[Figure] = []
    for share, linger_ms in cases(scale.rate_shares):
        topic = f"fixed-{share:g}-{linger_ms}"
        await run.memory_filled()
        await topics.create(system.bootstrap_servers, topic, 1)
        per_s = max(1.0, share * most_per_s)
        over = asyncio.sleep(seconds)
        arrivals = await tail(system, topic, per_s, over, linger_ms=linger_ms)
        begin_s = min(due_s for due_s, _ in arrivals) + scale.warm_up_s
        found = latencies_ms(arrivals, begin_s, float("inf"))
        figures += named(
            label(share, linger_ms),
            {"rate records/s": per_s, **{UNITS[name]: value for name, value in found.items()}},
        )
    return figures
