"""Transactions of several sizes, what they cost beside plain batches, and committed data.

Beside transactions of 1,000 records the same producers send the same records without any, and wait
until each 1,000 are acknowledged before they send more. So as many records are in flight inside and
outside, in batches of the same size, and what differs is what a transaction costs. A producer that
never waits has more in flight: `produce` measures that one.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ops.bench import topics
from ops.bench.figures import Figure, Run, Spent, named
from ops.bench.load.channel import LoadProcess
from ops.bench.load.metered import metered
from ops.bench.peers.system import System
from ops.bench.workloads.records.filling import warm_up

PRODUCERS: Final = 8
"""At a time, each with a partition and a transactional id of its own."""
VALUE_BYTES: Final = 1024


async def _write(
    system: System, run: Run, topic: str, records: int, aborted: float | None
) -> tuple[dict[str, Any], Spent, int]:
    """Write to a new topic; return what the load says of its span, what that cost, and how many
    records are committed."""
    await run.memory_filled()
    await topics.create(system.bootstrap_servers, topic, PRODUCERS)
    async with LoadProcess(
        "transactions",
        servers=system.bootstrap_servers,
        topic=topic,
        producers=PRODUCERS,
        records=records,
        value_bytes=VALUE_BYTES,
        aborted=aborted,
        warm_up_s=run.scale.warm_up_s,
        measure_s=run.scale.measure_s,
    ) as load:
        await load.event("ready")
        load.say("go")
        end, spent = await metered(load, system.pids(), system.broker_pids().values())
        return end, spent, (await load.event("done"))["records"]


class _Rate(NamedTuple):
    """How fast records are written, and what for."""

    per_s: float
    per_cpu_s: float

    @classmethod
    def of(cls, end: dict[str, Any], spent: Spent, records: int) -> _Rate:
        """Return the rate of a load whose commits, or flushes, were of this many records."""
        written = end["commits"] * records
        return cls(written / end["seconds"], written / max(spent.cpu_s, 0.01))


async def _size(system: System, run: Run, records: int) -> tuple[list[Figure], _Rate]:
    """Measure transactions of this many records; return their figures and the records' rate."""
    end, spent, _ = await _write(system, run, f"transactions-{records}", records, 0.0)
    plural = "" if records == 1 else "s"
    rate = _Rate.of(end, spent, records)
    figures = named(
        f"transactions of {records:,} record{plural}",
        {
            "commits/s": end["commits"] / end["seconds"],
            "commits per CPU s": end["commits"] / max(spent.cpu_s, 0.01),
            "records/s": rate.per_s,
            "commit p50 ms": end["p50_ms"],
            "commit p99 ms": end["p99_ms"],
        },
    )
    return figures, rate


async def _reading(system: System, run: Run, records: int, aborted: float) -> list[Figure]:
    """Measure a reader of committed data where a share of the transactions is aborted."""
    topic = f"aborted-{aborted:g}"
    *_, committed = await _write(system, run, topic, records, aborted)
    await run.memory_filled()
    async with LoadProcess(
        "read",
        servers=system.bootstrap_servers,
        topic=topic,
        partitions=PRODUCERS,
        records=committed,
        group="committed",
    ) as load:
        await load.event("ready")
        load.say("go")
        done = await load.event("done")
    return named(
        f"read committed, {aborted:.0%} of transactions aborted",
        {"MB/s": done["value_bytes"] / 1e6 / (done["end_s"] - done["begin_s"])},
    )


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure each size, the largest without transactions too, and each share of aborted ones."""
    scale = run.scale
    await warm_up(system, run, "transactions")
    figures: list[Figure] = []
    inside = _Rate(0.0, 0.0)
    for records in scale.transaction_records:
        found, inside = await _size(system, run, records)
        figures += found
    records = scale.transaction_records[-1]
    end, spent, _ = await _write(system, run, "no-transactions", records, None)
    outside = _Rate.of(end, spent, records)
    figures += named(
        f"the same {records:,} records outside transactions",
        {
            "records/s": outside.per_s,
            "records/s inside as part of that": inside.per_s / outside.per_s,
            "records per CPU s": outside.per_cpu_s,
            "records per CPU s inside as part of that": inside.per_cpu_s / outside.per_cpu_s,
        },
    )
    for aborted in scale.aborted_shares:
        figures += await _reading(system, run, records, aborted)
    return figures
