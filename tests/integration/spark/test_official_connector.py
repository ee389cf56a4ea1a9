"""Spark's own Kafka source and sink, unmodified, on our brokers, through a fail-over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from tests.integration.clients.installed import INSTALL
from tests.integration.cluster import LocalCluster
from tests.integration.spark.conftest import JARS
from tests.integration.spark.topics import create, publish

COUNT = 3000


@pytest.mark.timeout(240)
def test_it_reads_and_writes_batches_and_streams_through_a_fail_over(
    start_cluster: Callable[..., LocalCluster], spark: SparkSession, tmp_path: Path
) -> None:
    assert any(JARS.glob("*.jar")), f"Spark's own Kafka source is not there: {INSTALL}"
    cluster = start_cluster(brokers=2)
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    source = create(cluster, "official-in", partition_count=3)
    for index in range(3):
        publish(cluster, source, (b"%d" % n for n in range(COUNT)), partition=index)

    def offsets(frame: DataFrame) -> list[tuple[int, int, int]]:
        counted = functions.count("value"), functions.max("offset")
        grouped = frame.groupBy("partition").agg(*counted)
        return sorted(map(tuple, grouped.collect()))

    def load(topic: str, **more: Any) -> DataFrame:
        reader = spark.read.format("kafka").options(subscribe=topic, **servers, **more)
        return reader.load()

    everything = [(index, COUNT, COUNT - 1) for index in range(3)]
    assert offsets(load(source, minPartitions="6")) == everything

    sink = create(cluster, "official-out", partition_count=2)
    kills: list[int] = []

    def forward(frame: DataFrame, number: int) -> None:
        if number == 1:
            kills.append(cluster.kill("broker-0"))
        frame.select("key", "value", "headers").write.format("kafka").options(
            topic=sink, **servers
        ).save()

    query = (
        spark.readStream.format("kafka")
        .options(
            subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="3000",
            includeHeaders="true", **servers,
        )
        .load().writeStream.foreachBatch(forward)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(200)
    assert len(kills) == 1
    cluster.wait_restarted("broker-0", kills[0])

    copied = load(sink)
    wanted = sorted([str(n) for n in range(COUNT)] * 3)
    # At least once is what this sink promises: a task that failed is run again.
    values = [row.value for row in copied.selectExpr("cast(value as string) value").collect()]
    assert sorted(set(values)) == sorted(set(wanted))
    assert len(values) >= len(wanted)
    ours = spark.read.format("quire").options(subscribe=sink, **servers).load()
    assert ours.count() == len(values)

    streamed = create(cluster, "official-stream")
    written = (
        spark.readStream.format("quire")
        .options(subscribe=source, startingOffsets="earliest", **servers).load()
        .select("key", "value")
        .writeStream.format("kafka").options(topic=streamed, **servers)
        .option("checkpointLocation", str(tmp_path / "checkpoint-2"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert written.awaitTermination(100)
    assert load(streamed).count() == 3 * COUNT
