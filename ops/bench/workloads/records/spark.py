"""Reading a topic of one partition into Spark: rows per task slot, and what a row costs.

On Quire our data source reads through the brokers and from the ledgers, and Spark's own Kafka
source (`spark-sql-kafka`) reads the same topic beside it. The rows that compare systems have on
either side what its users have: our data source on Quire, Spark's own on Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ops.bench.figures import Figure, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.load.spark import BROKER, LEDGERS, OFFICIAL, ONE_TASK
from ops.bench.peers.quire import QuireSystem
from ops.bench.peers.system import System
from ops.bench.workloads.records.filling import fill
from ops.bench.workloads.records.produce_sizes import BATCHES

_OUTSTANDING_BYTES_MAX: Final = 4 << 20

Reading = Mapping[str, Any]
"""A `reading` event of the load process."""


def label(value_bytes: int, way: str) -> str:
    """Name the workload of some rows."""
    return f"spark {value_bytes} B, {way}"


async def measure(system: System, run: Run) -> list[Figure]:
    """Fill a topic of each size, and read them all with one Spark."""
    scale = run.scale
    filled = [(await _fill(system, size, scale.spark_bytes), size) for size in scale.spark_values]
    on_quire = isinstance(system, QuireSystem)
    readings: dict[tuple[str, str], Reading] = {}
    triggers: dict[str, float] = {}
    async with LoadProcess(
        "spark",
        servers=system.bootstrap_servers,
        zookeeper=system.zookeeper if isinstance(system, QuireSystem) else "",
        topics=[topic for topic, _size in filled],
        brokers=list(system.broker_pids().values()),
        bookies=system.bookie_pids() if isinstance(system, QuireSystem) else [],
        warm_ups=scale.spark_warm_ups,
        passes=scale.spark_passes,
        triggers=scale.spark_triggers,
    ) as load:
        await load.event("ready")
        load.say("go")
        while (event := await load.event("reading", "trigger", "done"))["event"] != "done":
            if event["event"] == "reading":
                readings[event["topic"], event["way"]] = event
            else:
                triggers[event["way"]] = event["add_batch_ms"]
    figures: list[Figure] = []
    for (topic, _records), size in filled:
        of_topic = {way: reading for (name, way), reading in readings.items() if name == topic}
        figures += _figures(size, of_topic, on_quire=on_quire)
    return figures + _streams(triggers, event["worker_bytes_max"], on_quire=on_quire)


async def _fill(system: System, value_bytes: int, size: int) -> tuple[str, int]:
    """Write a topic of about `size` bytes of values; return its name and records."""
    topic = f"spark-{value_bytes}"
    return topic, await fill(
        system,
        topic,
        size,
        value_bytes=value_bytes,
        outstanding_bytes_max=_OUTSTANDING_BYTES_MAX,
        settings=BATCHES["16 KiB batches"],
    )


def _figures(value_bytes: int, readings: Mapping[str, Reading], *, on_quire: bool) -> list[Figure]:
    """Return the figures of one topic."""
    official = readings.get(OFFICIAL)
    figures: list[Figure] = []
    own = readings[ONE_TASK] if on_quire else official
    if own is not None:
        figures += named(label(value_bytes, "one task"), _cost(own))
    if official is not None:
        figures += named(label(value_bytes, "spark-sql-kafka"), _cost(official))
    if not on_quire:
        return figures
    ours = readings[ONE_TASK]
    if official is not None:
        figures += named(
            label(value_bytes, "as part of spark-sql-kafka on the same topic"),
            {
                "rows/s": official["seconds"] / ours["seconds"],
                "Spark's CPU": ours["spark_cpu_s"] / official["spark_cpu_s"],
            },
        )
    return figures + _from_ledgers(value_bytes, readings)


def _cost(reading: Reading) -> dict[str, float]:
    millions = reading["records"] / 1e6
    return {
        "rows/s": reading["records"] / reading["seconds"],
        "Spark's CPU s per million rows": reading["spark_cpu_s"] / millions,
        "brokers' CPU s per million rows": reading["broker_cpu_s"] / millions,
    }


def _from_ledgers(value_bytes: int, readings: Mapping[str, Reading]) -> list[Figure]:
    """Return what ledger mode does, and what follows from it for many executors.

    A core of a server can feed as many cores of Spark as Spark spends seconds for each of its
    own. In broker mode that server is the one leader, in ledger mode every bookie is one.
    """
    broker, ledgers = readings[BROKER], readings[LEDGERS]
    entry_us = 1e6 / max(1, ledgers["entries"])
    return [
        *named(
            label(value_bytes, "ledger mode"),
            {
                "tasks": ledgers["tasks"],
                **_cost(ledgers),
                "bookies' CPU s per million rows": ledgers["bookie_cpu_s"]
                / (ledgers["records"] / 1e6),
                "rows/s as part of broker mode's": broker["seconds"] / ledgers["seconds"],
                "brokers' CPU in cores": ledgers["broker_cpu_s"] / ledgers["seconds"],
                "Spark's CPU µs per entry": ledgers["spark_cpu_s"] * entry_us,
                "bookies' CPU µs per entry": ledgers["bookie_cpu_s"] * entry_us,
            },
        ),
        *named(
            label(value_bytes, "cores of Spark that one core can feed, computed"),
            {
                "of the leader, broker mode": _fed(broker["spark_cpu_s"], broker["broker_cpu_s"]),
                "of a bookie, ledger mode": _fed(ledgers["spark_cpu_s"], ledgers["bookie_cpu_s"]),
            },
        ),
    ]


def _fed(spark_cpu_s: float, server_cpu_s: float) -> float:
    """Return how many seconds Spark spends for one of the server; a tick is the least there is."""
    return spark_cpu_s / max(server_cpu_s, 0.01)


def _streams(
    triggers: Mapping[str, float], worker_bytes_max: int, *, on_quire: bool
) -> list[Figure]:
    way = ONE_TASK if on_quire else OFFICIAL
    found: dict[str, float] = {}
    if way in triggers:
        found["addBatch ms"] = triggers[way]
    if on_quire:
        found["largest Python worker MB"] = worker_bytes_max / 1e6
    return named("spark trigger of a quiet stream", found)
