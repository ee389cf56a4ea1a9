"""The exactly-once sink with a real Spark: tasks that fail, batches that are run again, drivers
that are killed; and readers of what is committed, through brokers and from ledgers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from client.pubsub import TransactionalPublisher
from client.spark.options import parse_options
from client.spark.read.batch_reader import QuireBatchReader
from client.spark.splits import LedgerSplit
from tests.integration.cluster import ROOT, LocalCluster, wait_until
from tests.integration.spark.killed_driver import NONE, REACHED
from tests.integration.spark.killed_sink import STEPS
from tests.integration.spark.topics import create, publish
from tests.integration.test_pubsub_transactions import read

COUNT = 600


class Copy:
    """A query that copies a topic, as often as it is run."""

    def __init__(self, cluster: LocalCluster, spark: SparkSession, name: str, folder: Path) -> None:
        self._cluster = cluster
        self._spark = spark
        self._name = name
        self.checkpoint = folder / "checkpoint"
        self.source = create(cluster, f"once-{name}", partition_count=2)
        self.target = create(cluster, f"once-{name}-copy", partition_count=3)

    def fill(self, start: int, end: int) -> None:
        for partition in range(2):
            numbers = range(start + partition, end, 2)
            publish(self._cluster, self.source, [b"%d" % n for n in numbers], partition=partition)

    def run(
        self, value: Column | None = None, per_batch: int = 200, **options: str
    ) -> StreamingQuery:
        """Copy everything there is in several batches."""
        query = self.start(value, per_batch, **options)
        assert query.awaitTermination(100)
        return query

    def start(
        self, value: Column | None = None, per_batch: int = 200, **options: str
    ) -> StreamingQuery:
        """Begin to copy everything there is."""
        servers = self._cluster.bootstrap_servers
        rows: DataFrame = (
            self._spark.readStream.format("quire")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(per_batch))
            .load()
            .select("key", "value")
        )
        if value is not None:
            rows = rows.withColumn("value", value)
        query = (
            rows.writeStream.format("quire")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", self.target)
            .option("deliveryGuarantee", "exactly-once")
            .option("sinkId", self._name)
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        return query

    def forget_last_commit(self) -> int:
        """Leave the checkpoint as a driver does that dies before it notes the last batch."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last

    def values(self, *, committed: bool = True) -> list[int]:
        return sorted(map(int, read(self._cluster, self.target, committed=committed)))


def test_a_batch_that_spark_runs_again_is_not_written_again(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy(cluster, spark, "replay", tmp_path)
    copy.fill(0, COUNT)
    copy.run()
    assert copy.values() == list(range(COUNT))
    last = copy.forget_last_commit()
    copy.fill(COUNT, COUNT + 10)
    query = copy.run()
    assert [one["batchId"] for one in query.recentProgress][:2] == [last, last + 1]
    assert copy.values() == list(range(COUNT + 10))


def fail_once(value: bytes) -> bytes:
    """Fail the first attempt of every task after it has passed on some rows."""
    context = TaskContext.get()
    assert context is not None
    if int(value) >= COUNT // 2 and context.attemptNumber() == 0:
        raise RuntimeError("a task fails in the middle")
    return value + bytes(b" " * 4000)  # so that Spark passes rows on before it has all of them


def test_what_a_failed_task_wrote_is_never_seen(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy(cluster, spark, "failing", tmp_path)
    copy.fill(0, COUNT)
    rows_max = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(rows_max)
    spark.conf.set(rows_max, "20")
    try:
        copy.run(
            F.udf(fail_once, "binary", useArrow=False)("value"),
            per_batch=COUNT,
            **{"kafka.linger.ms": "0"},
        )
    finally:
        spark.conf.set(rows_max, before or "10000")
    assert copy.values() == list(range(COUNT))
    assert len(copy.values(committed=False)) > COUNT, "no task had written before it failed"


@pytest.mark.timeout(300)
def test_nodes_die_while_batches_are_written(
    start_cluster: Callable[..., LocalCluster], spark: SparkSession, tmp_path: Path
) -> None:
    cluster = start_cluster(brokers=2, bookies=4)
    copy = Copy(cluster, spark, "nodes", tmp_path)
    copy.fill(0, 2 * COUNT)
    victims = ["broker-0", "bookie-1", "broker-1"]
    query = copy.start(per_batch=100)

    def is_done() -> bool:
        if victims and len(query.recentProgress) > 3 * (3 - len(victims)):
            cluster.kill(victims.pop(0))
        return not query.isActive

    wait_until(is_done, "the query to copy everything", 250)
    assert query.exception() is None
    assert not victims
    assert copy.values() == list(range(2 * COUNT))


@pytest.mark.timeout(600)
def test_a_driver_dies_at_every_step_of_a_commit(cluster: LocalCluster, tmp_path: Path) -> None:
    topic = create(cluster, "once-killed", partition_count=2)
    for number in range(len(STEPS)):
        create(cluster, f"once-killed-{number}", partition_count=2)
    for partition in range(2):
        publish(cluster, topic, [b"%d" % n for n in range(partition, 200, 2)], partition=partition)

    def driver(steps: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.spark.killed_sink"]
        with (tmp_path / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [*command, cluster.bootstrap_servers, topic, str(tmp_path), *steps],
                cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    def have_reached(process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
        return all((tmp_path / str(n) / REACHED).exists() for n in range(len(STEPS)))

    process = driver(list(STEPS))
    try:
        wait_until(partial(have_reached, process), "the queries to come to their steps", 200)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    seen = [len(read(cluster, f"once-killed-{number}")) for number in range(len(STEPS))]
    assert seen[0] == 0, "rows are visible before their batch is decided"
    assert seen[2] == 60, "the batch that ended is not visible"

    process = driver([NONE] * len(STEPS))
    try:
        assert process.wait(200) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for number in range(len(STEPS)):
        values = sorted(map(int, read(cluster, f"once-killed-{number}")))
        assert values == list(range(200)), STEPS[number]


def test_committed_data_is_the_same_from_brokers_and_from_ledgers(
    cluster: LocalCluster, spark: SparkSession
) -> None:
    topic = create(cluster, "once-ledgers", configs={"segment.bytes": str(64 * 1024)})

    async def write() -> list[int]:
        committed: list[int] = []
        async with TransactionalPublisher("once-ledgers", cluster.bootstrap_servers) as publisher:
            for number in range(60):
                values = range(number * 100, number * 100 + 100)
                await publisher.begin()
                for value in values:
                    await publisher.enqueue(topic, b"%06d" % value + bytes(60), partition=0)
                if number % 3 == 1:
                    await publisher._running().sender.drained()
                    await publisher.abort()
                else:
                    await publisher.commit()
                    committed += values
        return committed

    committed = asyncio.run(write())
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "metadataServiceUri": cluster.zookeeper,
        "subscribe": topic,
    }
    for mode in ("broker", "ledger"):
        rows = (
            spark.read.format("quire").options(**options).option("readMode", mode).load()
            .selectExpr("cast(substring(value, 1, 6) as string) as number")
        )  # fmt: skip
        assert sorted(int(row.number) for row in rows.collect()) == committed, mode
    reader = QuireBatchReader(parse_options({**options, "readMode": "ledger"}, streaming=False))
    parts = [part for task in reader.partitions() for part in task.parts]  # type: ignore[attr-defined]
    sealed = [one for one in parts if isinstance(one, LedgerSplit) and one.aborted is not None]
    assert len(sealed) >= 3
    assert sum(len(one.aborted or ()) for one in sealed) >= 10
