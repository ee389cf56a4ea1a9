"""Reads topics of one partition into Spark's `noop` sink, way by way, and tells what each cost.

Spark runs in local mode with two task slots and the settings that `client/spark/README.md`
recommends. Seconds of CPU are read from /proc: those of the JVM and its Python workers, of the
brokers, and of the bookies. Only reading is measured, after a few readings that warm the JVM up.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from ops.bench.load.channel import LoadFailed, hear, tell
from ops.bench.process_cpu import command_line, cpu_s, resident_bytes_max, tree, tree_cpu_s
from ops.bench.report.targets import SPARK_SLOTS as SLOTS

JARS: Final = Path(__file__).parents[3] / "tests" / "integration" / "spark" / "jars" / "lib"
"""Spark's own Kafka source, as `make clients` fetches it."""
ONE_TASK: Final = "one task"
LEDGERS: Final = "ledgers"
BROKER: Final = "broker"
OFFICIAL: Final = "spark-sql-kafka"
TRIGGER_RECORDS: Final = 100


class Way(NamedTuple):
    """A way of reading a topic."""

    name: str
    format: str
    options: Mapping[str, str]


class Topic(NamedTuple):
    """A topic of one partition."""

    name: str
    records: int


def official_jars() -> list[Path]:
    """Return the jars of Spark's own Kafka source; none if they are not there."""
    return sorted(JARS.glob("*.jar"))


def ways(zookeeper: str) -> list[Way]:
    """Return the ways that are compared: Spark's own, and ours where there are ledgers."""
    official = [Way(OFFICIAL, "kafka", {})] if official_jars() else []
    if not zookeeper:
        return official
    cut = {"minPartitions": str(2 * SLOTS)}
    ledgers = {"readMode": "ledger", "metadataServiceUri": zookeeper, **cut}
    return [
        Way(ONE_TASK, "quire", {"maxBytesPerPartition": "1t"}),
        Way(BROKER, "quire", cut),
        Way(LEDGERS, "quire", ledgers),
        *official,
    ]


def start_spark() -> SparkSession:
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
    if jars := official_jars():
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Readings:
    """One Spark that reads from one cluster."""

    def __init__(
        self, spark: SparkSession, servers: str, brokers: Sequence[int], bookies: Sequence[int]
    ) -> None:
        self._spark = spark
        self._servers = servers
        self._brokers = brokers
        self._bookies = bookies
        gateway: Any = spark.sparkContext._gateway
        self._jvm: int = gateway.proc.pid

    def options(self, topic: Topic, way: Way) -> dict[str, str]:
        """Return what a reader of a topic is given."""
        return {
            "kafka.bootstrap.servers": self._servers, "subscribe": topic.name, **way.options,
        }  # fmt: skip

    def read(self, topic: Topic, way: Way, warm_ups: int, passes: int) -> dict[str, float]:
        """Read a topic several times; return the medians of what a reading took.

        Raises LoadFailed if other records than all of them were read.
        """
        rows = self._spark.read.format(way.format).options(**self.options(topic, way))
        if (found := rows.load().count()) != topic.records:
            raise LoadFailed(f"{way.name} read {found} of {topic.records} records")
        for _ in range(warm_ups):
            self._once(rows.load())
        measured = [self._once(rows.load()) for _ in range(passes)]
        names = ("seconds", "spark_cpu_s", "broker_cpu_s", "bookie_cpu_s")
        medians = map(statistics.median, zip(*measured, strict=True))
        return {**dict(zip(names, medians, strict=True)), **self._planned(topic, way)}

    def _once(self, rows: Any) -> list[float]:
        before = self._clocks()
        rows.write.format("noop").mode("overwrite").save()
        return [after - since for since, after in zip(before, self._clocks(), strict=True)]

    def _clocks(self) -> list[float]:
        servers = cpu_s(self._brokers), cpu_s(self._bookies)
        return [time.monotonic(), tree_cpu_s(self._jvm), *servers]

    def _planned(self, topic: Topic, way: Way) -> dict[str, float]:
        """Return how many tasks read ledgers, and how many entries."""
        if way.name != LEDGERS:
            return {}
        from client.spark.options import parse_options
        from client.spark.read.batch_reader import QuireBatchReader
        from client.spark.splits import LedgerSplit

        options = parse_options(self.options(topic, way), streaming=False)
        tasks: Sequence[Any] = QuireBatchReader(options).partitions()
        splits = [[part for part in task.parts if isinstance(part, LedgerSplit)] for task in tasks]
        entries = sum(part.last_entry - part.first_entry + 1 for some in splits for part in some)
        return {"tasks": len([some for some in splits if some]), "entries": entries}

    def trigger(self, topic: Topic, way: Way, triggers: int) -> float:
        """Return the median milliseconds of addBatch for a batch of `TRIGGER_RECORDS`."""
        start = max(0, topic.records - TRIGGER_RECORDS * triggers)
        with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
            query = (
                self._spark.readStream.format(way.format)
                .options(**self.options(topic, way))
                .option("startingOffsets", f'{{"{topic.name}":{{"0":{start}}}}}')
                .option("maxOffsetsPerTrigger", TRIGGER_RECORDS)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            progress = [one for one in query.recentProgress if one["numInputRows"]]
        took_ms = [float(one["durationMs"]["addBatch"]) for one in progress]
        return statistics.median(took_ms[len(took_ms) // 3 :])  # after what loads late

    def worker_bytes_max(self) -> int:
        """Return the most memory that a Python worker had."""
        workers = [pid for pid in tree(self._jvm) if "pyspark.daemon" in command_line(pid)]
        return max((resident_bytes_max(pid) for pid in workers), default=0)


def run(
    servers: str,
    zookeeper: str,
    topics: Sequence[tuple[str, int]],
    brokers: Sequence[int],
    bookies: Sequence[int],
    warm_ups: int,
    passes: int,
    triggers: int,
) -> None:
    """Events: ready; after "go" a `reading` for each topic and way, a `trigger` for the first way
    of all, and done. `topics` are (name, records); `brokers` and `bookies` process ids.
    """
    spark = start_spark()
    tell("ready")
    hear()
    readings = Readings(spark, servers, brokers, bookies)
    compared = ways(zookeeper)
    given = [Topic(*one) for one in topics]
    for topic in given:
        for way in compared:
            took = readings.read(topic, way, warm_ups, passes)
            tell("reading", topic=topic.name, way=way.name, records=topic.records, **took)
    for way in compared[:1]:
        tell("trigger", way=way.name, add_batch_ms=readings.trigger(given[0], way, triggers))
    tell("done", worker_bytes_max=readings.worker_bytes_max())
    spark.stop()
