"""Brokers and bookies that die while Spark reads: nothing lost, nothing twice."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

from tests.integration.cluster import LocalCluster
from tests.integration.spark.conftest import Runs
from tests.integration.spark.topics import create, publish

COUNT = 20_000


@pytest.mark.timeout(240)
def test_a_broker_and_a_bookie_die_in_mid_query(
    start_cluster: Callable[..., LocalCluster], spark: SparkSession, runs: Runs
) -> None:
    cluster = start_cluster(brokers=2, bookies=4)
    topic = create(cluster, "faults", partition_count=4)
    for index in range(4):
        publish(cluster, topic, (b"%d" % n for n in range(COUNT)), partition=index)

    def read(kind: Any, **more: object) -> Any:
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic,
            "startingOffsets": "earliest", **more,
        }  # fmt: skip
        return kind.format("quire").options(**{name: str(v) for name, v in options.items()}).load()

    victims = ["broker-0", "bookie-1", "broker-1"]
    kills: list[str] = []

    def kill_one(frame: Any, number: int) -> None:
        """Kill a node once the tasks of this batch have begun to read, then write it."""
        cached = frame.persist()
        if number % 2 == 1 and victims:
            kills.append(victims[0])
            cluster.kill(victims.pop(0))
        cached.write.mode("overwrite").parquet(str(runs.parquet / f"batch={number}"))
        cached.unpersist()

    query = (
        read(spark.readStream, maxOffsetsPerTrigger=4 * COUNT // 8)
        .writeStream.foreachBatch(kill_one)
        .option("checkpointLocation", str(runs.checkpoint)).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(200)
    assert kills == ["broker-0", "bookie-1", "broker-1"]
    written = spark.read.parquet(str(runs.parquet)).groupBy("partition")
    rows = written.agg(functions.count("value"), functions.max("offset")).collect()
    assert sorted(map(tuple, rows)) == [(p, COUNT, COUNT - 1) for p in range(4)]
    whole = read(spark.read, maxRecordsPerPartition=1500, columns="partition,offset,value")
    checked = whole.where("cast(cast(value as string) as long) = offset").count()
    assert checked == 4 * COUNT
