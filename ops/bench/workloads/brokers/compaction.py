"""Compact a topic whose keys were overwritten, and produce beside it.

The topic is written with `cleanup.policy=delete`; then it is made compacted, and everything else of
compaction is what it is by default: when a system looks, how fast it may go, on how many threads.
Each of Kafka's replicas compacts its own copy; with Quire the leader does, and bookies store it.
So what compares is the work of a core: bytes of the log, once for each copy that is compacted, per
second of CPU that brokers and their children spent beyond what they spend idle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.load.latency import tail_figures
from ops.bench.peers.system import PeerError, System
from ops.bench.process_cpu import tree_cpu_s
from ops.bench.workloads.records.fixed_rate import tail

VALUE_BYTES: Final = 1024
OVERWRITES: Final = 5
"""Records of a key, on average."""
COMPACT: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TAIL_RECORDS_PER_S: Final = 200.0
_STRIDE: Final = 7_919
"""Between the numbers of two keys that follow each other."""
_SEGMENTS: Final = 16
_BATCH_BYTES: Final = 65_536
_SEGMENT_BYTES_MIN: Final = 1 << 20
"""Kafka takes no less."""
_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.2
_ROLL_S: Final = 0.3
_FLUSH_S: Final = 120.0


class Written(NamedTuple):
    """A topic that is there to be compacted."""

    topic: str
    records: int
    size: int


def configure(servers: str, topic: str, values: Mapping[str, str]) -> None:
    """Set a topic's configuration. Raises KafkaException."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(_FLUSH_S)


def _fill(servers: str, topic: str, size: int, segment_bytes: int) -> Written:
    """Write so slowly that segments end where they should: what comes while one ends is in it."""
    count = max(OVERWRITES, size // VALUE_BYTES)
    settings = {"linger.ms": 5, "acks": "all", "batch.size": _BATCH_BYTES}
    producer = Producer({"bootstrap.servers": servers, **settings})
    for number in range(count):
        key = b"%012d" % (number * _STRIDE % (count // OVERWRITES))
        value = b"%d" % number + bytes(VALUE_BYTES - 12)
        while True:
            try:
                producer.produce(topic, key=key, value=value)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        producer.poll(0)
        if number % (segment_bytes // VALUE_BYTES) == 0:
            producer.flush(_FLUSH_S)
            time.sleep(_ROLL_S)
    if producer.flush(_FLUSH_S):
        raise PeerError(f"{topic} could not be written")
    return Written(topic, count, count * VALUE_BYTES)


async def write(system: System, topic: str, size: int) -> Written:
    """Write a topic of one partition, in segments that may be compacted."""
    servers = system.bootstrap_servers
    segment_bytes = max(_SEGMENT_BYTES_MIN, size // _SEGMENTS)
    await topics.create(servers, topic, 1, {"segment.bytes": str(segment_bytes)})
    return await asyncio.to_thread(_fill, servers, topic, size, segment_bytes)


async def _compact(system: System, written: Written) -> float:
    """Make a topic compacted; return how long it took until all of it was. Raises PeerError."""
    began_s = time.monotonic()
    try:
        await asyncio.to_thread(configure, system.bootstrap_servers, written.topic, COMPACT)
    except KafkaException as error:
        raise PeerError(f"{written.topic} cannot be compacted: {error}") from error
    while not await system.is_compacted(written.topic):
        if time.monotonic() > began_s + _TIMEOUT_S:
            raise PeerError(f"{written.topic} is not compacted after {_TIMEOUT_S:g} s")
        await asyncio.sleep(_POLL_S)
    return time.monotonic() - began_s


def _cpu_s(system: System) -> float:
    return sum(map(tree_cpu_s, system.broker_pids().values()))


async def _idle_cpu(system: System, topic: str, measure_s: float) -> float:
    """Return the CPU seconds of a second in which nobody does anything but ask, as `_compact`."""
    idle_s, began_s = -_cpu_s(system), time.monotonic()
    while time.monotonic() < began_s + measure_s:
        await system.is_compacted(topic)
        await asyncio.sleep(_POLL_S)
    idle_s += _cpu_s(system)
    return idle_s / (time.monotonic() - began_s)


async def _alone(system: System, run: Run) -> dict[str, float]:
    written = await write(system, "compaction-alone", run.scale.compaction_bytes)
    work_s = -_cpu_s(system)
    took_s = await _compact(system, written)
    work_s += _cpu_s(system)
    per_s = await _idle_cpu(system, written.topic, run.scale.measure_s)
    work_s = max(0.01, work_s - per_s * took_s)
    copies = system.compacted_copies
    return {
        "MB per CPU s": written.size * copies / work_s / 1e6,
        "records per CPU s": written.records * copies / work_s,
        "until all is compacted s": took_s,
    }


async def _beside(system: System, run: Run) -> dict[str, float]:
    """Return the p99 of records at a fixed rate, before and during a compaction."""
    written = await write(system, "compaction-beside", run.scale.compaction_bytes)
    await topics.create(system.bootstrap_servers, "compaction-tail", 1)
    span = [0.0, 0.0]

    async def compact() -> None:
        await asyncio.sleep(run.scale.warm_up_s + run.scale.compaction_tail_s)
        span[0] = time.monotonic()
        await _compact(system, written)
        span[1] = time.monotonic()

    arrivals = await tail(system, "compaction-tail", TAIL_RECORDS_PER_S, compact())
    begin_s, end_s = span
    return tail_figures(arrivals, begin_s - run.scale.compaction_tail_s, begin_s, end_s)


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure a compaction alone, and one beside a topic that is produced to and read."""
    alone = await _alone(system, run)
    beside = await _beside(system, run)
    return [
        *named("compaction of 1 KiB records", alone),
        *named("compaction beside a tail", beside),
    ]
