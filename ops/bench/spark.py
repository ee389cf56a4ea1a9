"""Rows per second from topics into Spark, and what they cost: through brokers, and from ledgers.

    python -m ops.bench.spark
    python -m ops.bench.spark --rounds 5 --json result.json --jars tests/integration/spark/jars/lib

Starts a cluster and a local Spark with two task slots on this machine, fills topics of one
partition with records of 100 bytes and of 1 KiB, and reads them into Spark's `noop` sink. Every
figure is the median of the rounds after one to warm up:

- rows/s        wall time of the whole query
- CPU ns/row    of the JVM and its Python workers, which is what is left on a loaded machine
- broker, bookies   their CPU as a share of one core while the query ran

"broker, 1 task" is what compares with Spark's own Kafka source, which with --jars reads the same
topics by its one task per partition; "broker" cuts the partition. "ledger by ledger" has a task for
each ledger of 64 MiB, "ledgers cut" more. Tasks, brokers and bookies share the cores: what ledger
mode gains on machines of their own shows in the CPU per row and in what the broker is spared.

Then a stream reads 100 records per batch: what a trigger costs.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from client.pubsub import TopicAdmin
from client.spark.kafka_cluster import KafkaCluster
from client.spark.row_sender import RowSender
from client.spark.writer_options import WriterOptions
from ops.bench.process_cpu import command_line, cpu_s, resident_bytes_max, tree, tree_cpu_s
from ops.demo.cluster import OwnCluster

SLOTS: Final = 2
_SEGMENT_BYTES: Final = 64 << 20
_CHUNK_ROWS: Final = 20_000
_TRIGGER_RECORDS: Final = 100
_TRIGGER_BATCHES: Final = 30


class Filled(NamedTuple):
    """A topic to read."""

    topic: str
    value_bytes: int
    row_count: int


class Reading(NamedTuple):
    """What one way of reading cost, medians."""

    topic: str
    way: str
    tasks: int
    rows_per_s: float
    cpu_ns_per_row: float
    broker_share: float
    bookie_share: float


class Way(NamedTuple):
    """A way of reading a topic."""

    name: str
    format: str
    options: Mapping[str, str]


_WHOLE: Final = {"maxBytesPerPartition": "1t"}


def ways(zookeeper: str, *, with_kafka: bool) -> list[Way]:
    """Return the ways that are compared."""
    ledger = {"readMode": "ledger", "metadataServiceUri": zookeeper}
    found = [
        Way("broker, 1 task", "quire", _WHOLE),
        Way("broker", "quire", {"minPartitions": str(2 * SLOTS)}),
        Way("ledger by ledger", "quire", {**ledger, **_WHOLE}),
        Way("ledgers cut", "quire", {**ledger, "minPartitions": str(2 * SLOTS)}),
    ]
    return [*found, Way("spark-sql-kafka", "kafka", {})] if with_kafka else found


async def fill(servers: str, filled: Filled) -> None:
    """Make a topic of one partition and many ledgers."""
    async with TopicAdmin(servers) as topics:
        settings = {"segment.bytes": str(_SEGMENT_BYTES)}
        await topics.create(filled.topic, partition_count=1, configs=settings)
    await asyncio.to_thread(_fill, servers, filled)


def _fill(servers: str, filled: Filled) -> None:
    options = WriterOptions(servers, filled.topic, batch_bytes=16 << 10)
    cluster = KafkaCluster(servers, 60_000)
    sender = RowSender(cluster, options)
    for start in range(0, filled.row_count, _CHUNK_ROWS):
        rows = range(start, min(start + _CHUNK_ROWS, filled.row_count))
        keys = [b"key-%012d" % number for number in rows]
        values = [b"%012d" % number + bytes(filled.value_bytes - 12) for number in rows]
        names = ["key", "value"]
        sender.send([pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], names=names)])
    cluster.close()


def start_spark(jars: Sequence[Path]) -> SparkSession:
    """Start Spark with the settings that we document."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{SLOTS}]")
        .appName("quire-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Bench:
    """One cluster, one Spark."""

    def __init__(self, cluster: OwnCluster, spark: SparkSession, rounds: int) -> None:
        self._cluster = cluster
        self._spark = spark
        self._rounds = rounds
        gateway: Any = spark.sparkContext._gateway
        self._jvm: int = gateway.proc.pid

    def read(self, filled: Filled, way: Way) -> Reading:
        """Read a topic by one way, `rounds` times after one to warm up."""
        rows = (
            self._spark.read.format(way.format)
            .option("kafka.bootstrap.servers", self._cluster.bootstrap_servers)
            .option("subscribe", filled.topic)
            .options(**way.options)
        )
        measured = [self._once(rows.load(), filled) for _ in range(self._rounds + 1)][1:]
        medians = [statistics.median(column) for column in zip(*measured, strict=True)]
        tasks = rows.load().rdd.getNumPartitions()
        return Reading(filled.topic, way.name, tasks, *medians)

    def _once(self, rows: Any, filled: Filled) -> tuple[float, float, float, float]:
        servers = [*self._cluster.brokers.values()], [*self._cluster.bookies.values()]
        before = [tree_cpu_s(self._jvm), *map(cpu_s, servers)]
        began_s = time.monotonic()
        rows.write.format("noop").mode("overwrite").save()
        wall_s = time.monotonic() - began_s
        after = [tree_cpu_s(self._jvm), *map(cpu_s, servers)]
        spark_s, broker_s, bookie_s = (b - a for a, b in zip(before, after, strict=True))
        return (
            filled.row_count / wall_s,
            spark_s / filled.row_count * 1e9,
            broker_s / wall_s,
            bookie_s / wall_s,
        )

    def trigger(self, filled: Filled, way: Way) -> dict[str, float]:
        """Return medians, in milliseconds, of what a batch of 100 records takes."""
        ends = json.dumps({filled.topic: {"0": filled.row_count - 100 * _TRIGGER_BATCHES}})
        with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
            query = (
                self._spark.readStream.format(way.format)
                .option("kafka.bootstrap.servers", self._cluster.bootstrap_servers)
                .option("subscribe", filled.topic)
                .option("startingOffsets", ends)
                .option("maxOffsetsPerTrigger", _TRIGGER_RECORDS)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            steps = [one["durationMs"] for one in query.recentProgress if one["numInputRows"]]
        usual = steps[len(steps) // 3 :]  # after what loads late
        return {
            name: statistics.median(one.get(name, 0) for one in usual)
            for name in ("addBatch", "latestOffset", "queryPlanning", "triggerExecution")
        }

    def worker_bytes_max(self) -> int:
        """Return the most memory that a Python worker had."""
        workers = [pid for pid in tree(self._jvm) if "pyspark.daemon" in command_line(pid)]
        return max((resident_bytes_max(pid) for pid in workers), default=0)


def show(readings: Sequence[Reading], triggers: Mapping[str, Any], memory: int) -> None:
    """Print the tables."""
    console = Console()
    table = Table("topic", "way", "tasks", "rows/s", "CPU ns/row", "broker CPU", "bookies' CPU")
    for one in readings:
        table.add_row(
            one.topic, one.way, str(one.tasks), f"{one.rows_per_s:,.0f}",
            f"{one.cpu_ns_per_row:,.0f}", f"{one.broker_share:.0%}", f"{one.bookie_share:.0%}",
        )  # fmt: skip
    console.print(table)
    for name, steps in triggers.items():
        shown = ", ".join(f"{step} {ms:.0f} ms" for step, ms in steps.items())
        console.print(f"a batch of {_TRIGGER_RECORDS} records, {name}: {shown}")
    console.print(f"largest Python worker: {memory / 1e6:,.0f} MB")
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    console.print(f"load average {load} on {os.cpu_count()} cores")


async def measure(rows_small: int, rows_large: int, rounds: int, jars: Sequence[Path]) -> Any:
    """Run everything; return (readings, triggers, worker memory)."""
    filled = [
        Filled("bench-100b", 100, rows_small),
        Filled("bench-1kib", 1024, rows_large),
    ]
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
        async with OwnCluster(Path(folder)) as cluster:
            for one in filled:
                await fill(cluster.bootstrap_servers, one)
            return await asyncio.to_thread(_measure, cluster, filled, rounds, jars)


def _measure(
    cluster: OwnCluster, filled: Sequence[Filled], rounds: int, jars: Sequence[Path]
) -> Any:
    spark = start_spark(jars)
    try:
        bench = Bench(cluster, spark, rounds)
        compared = ways(cluster.zookeeper, with_kafka=bool(jars))
        readings = [bench.read(one, way) for one in filled for way in compared]
        streams = [way for way in compared if way.name in ("broker, 1 task", "spark-sql-kafka")]
        triggers = {way.name: bench.trigger(filled[0], way) for way in streams}
        return readings, triggers, bench.worker_bytes_max()
    finally:
        spark.stop()


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--rounds", default=5, show_default=True, help="Timed rounds of each way.")
@click.option("--rows-100b", default=1_000_000, show_default=True, help="Records of 100 bytes.")
@click.option("--rows-1kib", default=200_000, show_default=True, help="Records of 1 KiB.")
@click.option(
    "--jars", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with spark-sql-kafka and what it needs, to compare with.",
)  # fmt: skip
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write figures there.")
def main(
    rounds: int, rows_100b: int, rows_1kib: int, jars: Path | None, json_path: Path | None
) -> None:
    """Measure and print tables."""
    found = sorted(jars.glob("*.jar")) if jars else []
    readings, triggers, memory = asyncio.run(measure(rows_100b, rows_1kib, rounds, found))
    show(readings, triggers, memory)
    if json_path is not None:
        value = {
            "readings": [one._asdict() for one in readings],
            "triggers_ms": triggers,
            "worker_bytes_max": memory,
            "load_average": os.getloadavg(),
            "cores": os.cpu_count(),
        }
        json_path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
