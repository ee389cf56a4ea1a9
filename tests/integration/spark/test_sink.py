"""Writing DataFrames with a real Spark, and reading them with a Kafka client."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.integration.cluster import LocalCluster
from tests.integration.spark.topics import create, publish

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def consume(cluster: LocalCluster, topic: str, partition: int = 0) -> list[Any]:
    """Return all records of a partition, read by librdkafka."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "sink", "check.crcs": True}
    )
    at = TopicPartition(topic, partition, 0)
    _low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    consumer.assign([at])
    found: list[Any] = []
    while len(found) < high:
        found += consumer.consume(10_000, timeout=1)
    consumer.close()
    assert all(record.error() is None for record in found)
    return found


def options(cluster: LocalCluster, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, **more}


@pytest.mark.smoke
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_column_arrives(cluster: LocalCluster, spark: SparkSession, codec: str) -> None:
    topic = create(cluster, f"sink-columns-{codec}", partition_count=2)
    rows = spark.sql(
        f"""
        select * from values
          ('a', 'one', array(named_struct('key', 'h', 'value', cast('1' as binary))), 1,
           timestamp'2024-05-06 07:08:09.123Z', '{topic}'),
          (null, null, null, 0, timestamp'1969-12-31 23:59:59.999Z', '{topic}'),
          ('ü', '', array(named_struct('key', '', 'value', cast(null as binary))), 1, null,
           '{topic}')
        as t(key, value, headers, partition, timestamp, topic)
        """
    )
    rows.coalesce(1).write.format("quire").mode("append").options(
        **options(cluster, **{"kafka.compression.type": codec})
    ).save()
    (null,) = consume(cluster, topic, 0)
    assert (null.key(), null.value(), null.headers()) == (None, None, None)
    assert null.timestamp()[1] == -1
    first, second = consume(cluster, topic, 1)
    assert (first.key(), first.value(), first.headers()) == (b"a", b"one", [("h", b"1")])
    written = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=datetime.UTC)
    assert first.timestamp()[1] == (written - EPOCH) // datetime.timedelta(milliseconds=1)
    assert (second.key(), second.value()) == ("ü".encode(), b"")
    assert second.headers() == [("", None)]
    assert second.timestamp()[1] > first.timestamp()[1]


def test_many_rows_keep_their_keys_together(cluster: LocalCluster, spark: SparkSession) -> None:
    topic = create(cluster, "sink-many", partition_count=3)
    rows = spark.range(0, 50_000, numPartitions=2).select(
        (F.col("id") % 100).cast("string").alias("key"),
        F.col("id").cast("string").alias("value"),
    )
    rows.write.format("quire").mode("append").options(
        **options(cluster, topic=topic, **{"kafka.batch.size": "16k"})
    ).save()
    by_partition = [consume(cluster, topic, index) for index in range(3)]
    assert sorted(int(one.value()) for some in by_partition for one in some) == list(range(50_000))
    keys = [{one.key() for one in some} for some in by_partition]
    assert sum(map(len, keys)) == 100
    # The same key from librdkafka's own murmur2 partitioner goes to the same place.
    back = (
        spark.read.format("quire").options(**options(cluster, subscribe=topic)).load()
        .groupBy("partition").agg(F.count("*").alias("n"), F.countDistinct("key").alias("keys"))
        .collect()
    )  # fmt: skip
    assert {row["partition"]: row["keys"] for row in back} == dict(enumerate(map(len, keys)))
    assert {row["partition"]: row["n"] for row in back} == dict(enumerate(map(len, by_partition)))


@pytest.mark.smoke
def test_a_stream_from_topic_to_topic(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    source = create(cluster, "sink-from", partition_count=1)
    target = create(cluster, "sink-to", partition_count=1)

    def run() -> None:
        rows = (
            spark.readStream.format("quire")
            .options(**options(cluster, subscribe=source, startingOffsets="earliest"))
            .load()
            .select("key", F.concat(F.lit("seen "), F.col("value").cast("string")).alias("value"))
        )
        query = (
            rows.writeStream.format("quire")
            .options(**options(cluster, topic=target, checkpointLocation=str(tmp_path / "c")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    publish(cluster, source, [b"%d" % number for number in range(500)])
    run()
    publish(cluster, source, [b"%d" % number for number in range(500, 700)])
    run()
    found = [record.value() for record in consume(cluster, target)]
    assert found == [b"seen %d" % number for number in range(700)]


@pytest.mark.parametrize(
    ("more", "columns", "part"),
    [
        ({"sinkId": "a"}, "'t' as topic, 'v' as value", "deliveryGuarantee=exactly-once"),
        ({}, "'v' as value", "topic option required when no 'topic' attribute is present"),
        ({"topic": "sink-refused"}, "'v' as v", "required attribute 'value' not found"),
        ({}, "cast(null as string) as topic, 'v' as value", "null topic present in the data"),
        ({"topic": "sink-nowhere"}, "'v' as value", "topic sink-nowhere does not exist"),
        ({"topic": "sink-refused"}, "'v' as value, 7 as partition", "has no partition 7"),
    ],
)
def test_refusals_reach_the_user(
    cluster: LocalCluster, spark: SparkSession, more: dict[str, str], columns: str, part: str
) -> None:
    if more.get("topic") == "sink-refused" and "partition" in columns:
        create(cluster, "sink-refused")
    rows = spark.sql(f"select {columns}")
    with pytest.raises(PySparkException) as caught:
        rows.write.format("quire").mode("append").options(**options(cluster, **more)).save()
    assert part in str(caught.value)


def test_a_topic_is_not_overwritten(cluster: LocalCluster, spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="use mode append"):
        spark.sql("select 'v' as value").write.format("quire").mode("overwrite").options(
            **options(cluster, topic="sink-refused")
        ).save()
