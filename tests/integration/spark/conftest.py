"""One Spark for all tests of this folder: local mode, two task slots, the settings we document."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from tests.integration.cluster import LocalCluster

Batch = Callable[..., DataFrame]


JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Tests run too shortly for more optimisation to pay."""

JARS = Path(__file__).parent / "jars" / "lib"
"""Spark's own Kafka source, which one test needs; `make test` does without."""


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that may not be stopped or reconfigured; name queries and views after the test."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("quire-tests")
        .config("spark.jars", ",".join(map(str, sorted(JARS.glob("*.jar")))))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def batch(spark: SparkSession, cluster: LocalCluster) -> Batch:
    """Return what `batch("topic", option=value)` reads; dots in options are written __."""

    def load(topic: str = "", **options: object) -> DataFrame:
        reader = spark.read.format("quire").options(
            **{"kafka.bootstrap.servers": cluster.bootstrap_servers}
        )
        if topic:
            reader = reader.option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return reader.load()

    return load


@pytest.fixture
def stream(spark: SparkSession, cluster: LocalCluster) -> Callable[..., DataStreamReader]:
    """The same for streams; call `.load()` on it."""

    def reader(topic: str = "", **options: object) -> DataStreamReader:
        made = spark.readStream.format("quire").option(
            "kafka.bootstrap.servers", options.pop("servers", cluster.bootstrap_servers)
        )
        if topic:
            made = made.option("subscribe", topic)
        for name, value in options.items():
            made = made.option(name.replace("__", "."), str(value))
        return made

    return reader


class Runs:
    """Runs of one streaming query: they share a checkpoint, and a table in memory per run."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.checkpoint = folder / "checkpoint"
        self.parquet = folder / "parquet"
        self._queries: list[StreamingQuery] = []

    def start(self, frame: DataFrame, *, now: bool = False) -> StreamingQuery:
        """Start a run that appends to Parquet files, exactly once by Spark's own log of them."""
        writer = frame.writeStream.format("parquet").option("path", str(self.parquet))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if now:
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        self._queries.append(query)
        return query

    def finish(self, frame: DataFrame) -> StreamingQuery:
        """Run until everything there is has been read."""
        query = self.start(frame, now=True)
        assert query.awaitTermination(100)
        return query

    def values(self) -> list[bytes]:
        """Return the values written so far, by partition and offset."""
        rows = self.spark.read.parquet(str(self.parquet)).orderBy("partition", "offset").collect()
        return [bytes(row.value) for row in rows]

    def stop(self) -> None:
        for query in self._queries:
            query.stop()


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path) -> Iterator[Runs]:
    made = Runs(spark, tmp_path)
    yield made
    made.stop()
