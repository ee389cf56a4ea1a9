"""Ledger mode with a real Spark: batches and streams, planned by ledgers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from client.spark.options import parse_options
from client.spark.read.batch_reader import QuireBatchReader
from client.spark.splits import LedgerSplit
from tests.integration.cluster import LocalCluster
from tests.integration.spark.topics import create, publish

SEGMENT_BYTES = 128 * 1024


def fill(cluster: LocalCluster, topic: str, start: int, end: int) -> None:
    publish(cluster, topic, (b"%06d " % number + bytes(90) for number in range(start, end)))


def make(cluster: LocalCluster, topic: str, count: int) -> str:
    create(cluster, topic, configs={"segment.bytes": str(SEGMENT_BYTES)})
    fill(cluster, topic, 0, count)
    return topic


def options(cluster: LocalCluster, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "metadataServiceUri": cluster.zookeeper,
        "subscribe": topic,
        **more,
    }


def numbers(rows: DataFrame) -> list[int]:
    """Return the numbers that the values begin with, checked against the offsets, in order."""
    found = rows.select("offset", F.substring("value", 1, 6).cast("string").cast("int")).collect()
    assert all(row[0] == row[1] for row in found)
    return sorted(row[0] for row in found)


@pytest.mark.smoke
def test_one_partition_in_parallel(cluster: LocalCluster, spark: SparkSession) -> None:
    topic = make(cluster, "ledger-batch", 12_000)
    rows = (
        spark.read.format("quire")
        .options(**options(cluster, topic, readMode="ledger", minPartitions="6"))
        .load()
    )
    assert rows.rdd.getNumPartitions() >= 6
    assert numbers(rows) == list(range(12_000))
    bounds = {"startingOffsets": f'{{"{topic}":{{"0":4321}}}}',
              "endingOffsets": f'{{"{topic}":{{"0":8765}}}}'}  # fmt: skip
    part = (
        spark.read.format("quire")
        .options(**options(cluster, topic, readMode="ledger", **bounds))
        .load()
    )
    assert numbers(part) == list(range(4321, 8765))


@pytest.mark.parametrize(("least", "direct"), [("64k", True), ("1g", False)])
def test_auto_takes_ledgers_where_they_pay(
    cluster: LocalCluster, spark: SparkSession, least: str, direct: bool
) -> None:
    topic = make(cluster, f"ledger-auto-{least}", 6_000)
    given = options(cluster, topic, readMode="auto", ledgerMinBytes=least)
    rows = spark.read.format("quire").options(**given).load()
    assert numbers(rows) == list(range(6_000))
    tasks = QuireBatchReader(parse_options(given, streaming=False)).partitions()
    kinds = [type(part) for task in tasks for part in task.parts]  # type: ignore[attr-defined]
    assert (kinds.count(LedgerSplit) >= 4) == direct
    assert len(tasks) == 1, "so little is read by one task, whichever way"


def test_a_stream_goes_on_by_its_positions(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic = make(cluster, "ledger-stream", 5_000)

    def run() -> None:
        rows = (
            spark.readStream.format("quire")
            .options(
                **options(
                    cluster, topic, readMode="ledger", startingOffsets="earliest",
                    maxOffsetsPerTrigger="1700",
                )
            )
            .load()
        )  # fmt: skip
        query = (
            rows.select("offset", "value").writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )  # fmt: skip
        query.awaitTermination(90)

    run()
    fill(cluster, topic, 5_000, 8_000)
    run()
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == list(range(8_000))
    offsets = sorted(
        (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    assert len(offsets) >= 5
    last_line = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    hints = json.loads(last_line)["$quire"]["hints"]
    assert hints[topic]["0"]


def test_one_address_is_enough_for_ledgers(cluster: LocalCluster, spark: SparkSession) -> None:
    topic = make(cluster, "ledger-one-address", 2_000)
    given = options(cluster, topic, readMode="ledger", startingOffsets="earliest")
    del given["metadataServiceUri"]
    assert numbers(spark.read.format("quire").options(**given).load()) == list(range(2_000))
