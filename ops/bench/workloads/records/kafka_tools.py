"""Kafka's own measuring tools: what an application sees that uses Kafka's Java client.

Each case is measured twice on a topic of its own. The first run, short, tells how many records the
second one, which counts, needs in order to last; the tool knows no time. A tool's JVM starts anew
for each run and warms up in it, as those who run the tools see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ops.bench import topics
from ops.bench.figures import Figure, Meter, Run, named
from ops.bench.load import kafka_tools
from ops.bench.peers.system import System
from ops.bench.workloads.records.filling import warm_up

NAME: Final = "kafka-tools"
_READINGS: Final = 2


class Producer(NamedTuple):
    """One kind of producer."""

    label: str
    record_bytes: int
    settings: Mapping[str, str]
    partitions: tuple[int, ...]


DEFAULTS: Final = Producer("defaults", 1_000, {}, (1, 6, 24))
TUNED: Final = Producer(
    "128 KiB, 10 ms, lz4",
    1_000,
    {"batch.size": "131072", "linger.ms": "10", "compression.type": "lz4"},
    (6,),
)
SMALL: Final = Producer("defaults", 100, {}, (6,))
PRODUCERS: Final = (DEFAULTS, TUNED, SMALL)


def label(producer: Producer, partitions: int) -> str:
    """Name one row."""
    plural = "" if partitions == 1 else "s"
    return (
        f"kafka-producer-perf-test {producer.record_bytes} B, {partitions} partition{plural},"
        f" {producer.label}"
    )


async def _produce(
    system: System, run: Run, producer: Producer, partitions: int, topic: str
) -> tuple[list[Figure], int]:
    """Measure one case; return its figures, and the records that the topic has then."""
    servers, folder = system.bootstrap_servers, system.data_folder()
    size, settings = producer.record_bytes, producer.settings
    await topics.create(servers, topic, partitions)
    few = run.scale.tool_probe_bytes // size
    probed = await kafka_tools.produce(servers, topic, few, size, settings, folder)
    await run.memory_filled()
    count = max(few, round(probed.records_per_s * run.scale.tool_measure_s))
    meter = Meter(system.pids())
    found = await kafka_tools.produce(servers, topic, count, size, settings, folder)
    figures = named(
        label(producer, partitions),
        {
            "MB/s": found.records_per_s * size / 1e6,
            "CPU s per GB": meter.spent().cpu_s / (count * size) * 1e9,
            "p99 ms": found.p99_ms,
        },
    )
    return figures, few + count


async def _consume(system: System, run: Run, topic: str, records: int) -> list[Figure]:
    """Read a topic twice; the second reading counts."""
    servers, folder = system.bootstrap_servers, system.data_folder()
    size = records * DEFAULTS.record_bytes
    for _ in range(_READINGS):
        await run.memory_filled()
        meter = Meter(system.pids())
        found = await kafka_tools.consume(servers, topic, records, folder)
        cpu_s = meter.spent().cpu_s
    return named(
        f"kafka-consumer-perf-test {DEFAULTS.record_bytes} B, {DEFAULTS.partitions[1]} partitions",
        {
            "MB/s fetching": found.fetched_bytes_per_s / 1e6,
            "MB/s with joining": found.bytes_per_s / 1e6,
            "CPU s per GB": cpu_s / size * 1e9,
        },
    )


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure each producer, then a consumer of what the first one wrote to several partitions."""
    await warm_up(system, run, NAME)
    figures: list[Figure] = []
    written: dict[str, int] = {}
    for i, producer in enumerate(PRODUCERS):
        for partitions in (n for n in producer.partitions if n in run.scale.tool_partitions):
            topic = f"tools-{i}-{partitions}"
            found, written[topic] = await _produce(system, run, producer, partitions, topic)
            figures += found
    topic = f"tools-{PRODUCERS.index(DEFAULTS)}-{DEFAULTS.partitions[1]}"
    return figures + await _consume(system, run, topic, written[topic])
