"""Runs the measuring tools that Kafka's own people use: its producer's and its consumer's.

`kafka-producer-perf-test` and `kafka-consumer-perf-test` of Apache Kafka, with the heap of their
start script. They are Java applications as users write them: a producer puts the batches of
several partitions into one request. A tool's process lives for one measurement, and what it says
is read from its output.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ops.bench.load.channel import LoadFailed
from ops.bench.peers import kafka
from ops.child import Child

_PACKAGE: Final = "org.apache.kafka.tools"
_JVM: Final = ("-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_TIMEOUT_MS: Final = 60_000
"""Without a record for this long the consumer's tool gives up."""
_MIB: Final = 1 << 20
_PRODUCED: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .* ([\d.]+) ms 99th")


class Produced(NamedTuple):
    """What the producer's tool says of all records."""

    records_per_s: float
    p99_ms: float
    """From `send` to the acknowledgement: with a full buffer mostly the wait in it."""


class Consumed(NamedTuple):
    """What the consumer's tool says."""

    bytes_per_s: float
    """With the time that joining the group took."""
    fetched_bytes_per_s: float
    """Without it."""


def produced(lines: Sequence[str], records: int) -> Produced:
    """Read the last summary: only the line of all records has a p99.

    Raises LoadFailed when a record was refused, which is not counted, or nothing is there.
    """
    for line in reversed(lines):
        if found := _PRODUCED.search(line):
            if int(found[1]) < records:
                break
            return Produced(float(found[2]), float(found[3]))
    raise LoadFailed(f"kafka-producer-perf-test was to send {records}: {' / '.join(lines)}")


def consumed(lines: Sequence[str], records: int) -> Consumed:
    """Read the table, a line of names and one of figures, in MiB/s.

    Raises LoadFailed when fewer records came, or there is no table.
    """
    at = next((i for i, line in enumerate(lines) if line.startswith("start.time")), None)
    if at is None or len(lines) < at + 2:
        raise LoadFailed(f"kafka-consumer-perf-test said no figures: {' / '.join(lines)}")
    (row,) = csv.DictReader(lines[at : at + 2], skipinitialspace=True)
    if int(row["data.consumed.in.nMsg"]) < records:
        raise LoadFailed(f"kafka-consumer-perf-test got {row['data.consumed.in.nMsg']} records")
    return Consumed(float(row["MB.sec"]) * _MIB, float(row["fetch.MB.sec"]) * _MIB)


async def _said(tool: str, folder: Path, *arguments: str) -> list[str]:
    """Run a tool; return its last lines. Raises LoadFailed when it fails."""
    command = kafka.java_command(_JVM, f"{_PACKAGE}.{tool}", *arguments)
    child = Child(tool, command, log_path=folder / f"{tool}.log")
    await child.start()
    try:
        how = await child.wait()
    finally:
        await child.stop(0)
    lines = child.last_lines()
    if how != "exit code 0":
        raise LoadFailed(f"{tool} ended with {how}: {' / '.join(lines)}")
    return lines


async def produce(
    servers: str,
    topic: str,
    records: int,
    record_bytes: int,
    settings: Mapping[str, str],
    folder: Path,
) -> Produced:
    """Produce as fast as it goes; `settings` of the producer beside its defaults.

    `folder`: where the output goes. Raises LoadFailed.
    """
    properties = {"bootstrap.servers": servers, **settings}
    lines = await _said(
        "ProducerPerformance",
        folder,
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", "-1", "--command-property"),
        *(f"{key}={value}" for key, value in properties.items()),
    )
    return produced(lines, records)


async def consume(servers: str, topic: str, records: int, folder: Path) -> Consumed:
    """Consume this many records from the beginning, in a group of its own. Raises LoadFailed."""
    lines = await _said(
        "ConsumerPerformance",
        folder,
        *("--bootstrap-server", servers, "--topic", topic, "--num-records", str(records)),
        *("--timeout", str(_TIMEOUT_MS)),
    )
    return consumed(lines, records)
