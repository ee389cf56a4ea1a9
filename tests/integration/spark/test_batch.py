"""Batch queries with real Spark on a real cluster: every option."""

import asyncio
import importlib.util
import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions

from client.pubsub import TopicAdmin
from tests.integration.cluster import LocalCluster
from tests.integration.spark.topics import create, publish

Batch = Callable[..., DataFrame]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def numbers(cluster: LocalCluster) -> str:
    """A topic of two partitions: 0 to 999 in the first, 1000 to 1499 in the second."""
    topic = create(cluster, "spark-numbers", partition_count=2)
    publish(cluster, topic, (b"%d" % n for n in range(1000)), partition=0)
    publish(cluster, topic, (b"%d" % n for n in range(1000, 1500)), partition=1)
    return topic


@pytest.fixture(scope="module")
def dated(cluster: LocalCluster) -> str:
    """Ten records, one per second of 1970, with headers and a tombstone."""
    topic = create(cluster, "spark-dated")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    for second in range(10):
        value = None if second == 7 else b"%d" % second
        producer.produce(
            topic, value, key=b"k", timestamp=second * 1000 + 1000,
            headers=[("second", b"%d" % second), ("none", None)] if second % 2 else None,
        )  # fmt: skip
        assert producer.flush(30) == 0  # each in a batch of its own
    return topic


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.collect())


def refused(frame: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:
        frame()
    return str(caught.value)


@pytest.mark.smoke
def test_columns_are_those_of_sparks_kafka_source(batch: Batch, dated: str) -> None:
    frame = batch(dated, includeHeaders=True)
    assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema] == [
        "key binary", "value binary", "topic string", "partition int", "offset bigint",
        "timestamp timestamp", "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]  # fmt: skip
    rows = frame.orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(10))
    first, second, seventh = rows[0], rows[1], rows[7]
    assert (first.key, first.value, first.topic, first.partition) == (b"k", b"0", dated, 0)
    assert (first.timestampType, first.headers) == (0, None)
    assert seventh.value is None
    assert [(header.key, header.value) for header in second.headers] == [
        ("second", b"1"), ("none", None),
    ]  # fmt: skip
    times = frame.selectExpr("cast(timestamp as long) as s").orderBy("s").collect()
    assert [row.s for row in times] == list(range(1, 11))


def test_columns_option_and_a_schema_of_ones_own(
    batch: Batch, spark: SparkSession, cluster: LocalCluster, numbers: str
) -> None:
    assert batch(numbers, columns="offset,value").columns == ["offset", "value"]
    assert values(batch(numbers, columns="value")) == list(range(1500))
    own = (
        spark.read.format("quire").schema("value binary, partition int")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", numbers).load()
    )  # fmt: skip
    assert own.columns == ["value", "partition"]
    assert values(own) == list(range(1500))


def test_topics_by_pattern_and_by_partition(batch: Batch, numbers: str) -> None:
    assert values(batch(subscribePattern="spark-num.*")) == list(range(1500))
    assert values(batch(assign=json.dumps({numbers: [1]}))) == list(range(1000, 1500))


def test_offsets_from_and_to(batch: Batch, numbers: str) -> None:
    begin = json.dumps({numbers: {"0": 990, "1": -2}})
    end = json.dumps({numbers: {"0": -1, "1": 3}})
    frame = batch(numbers, startingOffsets=begin, endingOffsets=end)
    assert values(frame) == [*range(990, 1000), *range(1000, 1003)]


def test_timestamps_from_and_to(batch: Batch, dated: str) -> None:
    def offsets(**options: object) -> list[int]:
        return sorted(row.offset for row in batch(dated, **options).collect())

    assert offsets(startingTimestamp=4500, endingTimestamp=7000) == [4, 5]
    one = json.dumps({dated: {"0": 9000}})
    assert offsets(startingOffsetsByTimestamp=one) == [8, 9]
    assert offsets(endingOffsetsByTimestamp=one) == list(range(8))
    late = {"startingTimestamp": 10**6}
    assert offsets(**late, startingOffsetsByTimestampStrategy="latest") == []
    assert "has no record at or after 1000000" in refused(batch(dated, **late).collect)


def test_partitions_are_cut_and_tiny_ones_joined(batch: Batch, numbers: str) -> None:
    def tasks(**options: object) -> int:
        frame = batch(numbers, **options)
        assert values(frame) == list(range(1500))
        return frame.rdd.getNumPartitions()

    assert tasks() == 1
    for count in (3, 4, 5, 7, 8, 10):
        assert tasks(minPartitions=count) == count
    assert tasks(maxRecordsPerPartition=100) == 15
    assert tasks(minPartitions=2, maxBytesPerPartition="4k") > 4


def test_rows_that_were_reported_as_gone_are_not_returned(
    batch: Batch, cluster: LocalCluster
) -> None:
    """Deleted between plan and read, in one batch with records that are kept."""
    topic = create(cluster, "spark-trimmed-batch")
    publish(cluster, topic, (b"%d" % n for n in range(50)))
    frame = batch(topic, failOnDataLoss=False, endingOffsets=json.dumps({topic: {"0": 40}}))
    assert frame.rdd.getNumPartitions() == 1
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for one in admin.delete_records([Partition(topic, 0, 30)]).values():
        assert one.result(30).low_watermark == 30
    assert values(frame) == list(range(30, 40))


def test_plain_functions_are_called_as_the_readme_says(batch: Batch, numbers: str) -> None:
    assert importlib.util.find_spec("pandas") is None, "with pandas the second column is 5"
    with pytest.warns(RuntimeWarning, match="Pandas is not installed"):
        kind = functions.udf(lambda value: type(value).__name__, "string")
        number = functions.udf(lambda _: "5", "int")
    frame = batch(numbers).select(kind("value"), number("value")).distinct()
    assert [tuple(row) for row in frame.collect()] == [("bytes", None)]


def test_arrow_batches_of_any_size(batch: Batch, numbers: str) -> None:
    frame = batch(numbers, arrowBatchRows=7, arrowBatchBytes="1k", gcFreeze=False)
    assert values(frame) == list(range(1500))


def test_every_codec(batch: Batch, cluster: LocalCluster) -> None:
    topic = create(cluster, "spark-codecs", partition_count=len(CODECS))
    for index, codec in enumerate(CODECS):
        records = (b"%d" % (index * 1000 + n) for n in range(1000))
        publish(cluster, topic, records, partition=index, codec=codec)
    assert values(batch(topic)) == list(range(1000 * len(CODECS)))


def test_log_append_time(batch: Batch, cluster: LocalCluster) -> None:
    topic = create(
        cluster, "spark-append-time", configs={"message.timestamp.type": "LogAppendTime"}
    )
    publish(cluster, topic, [b"0", b"1"])
    rows = batch(topic).collect()
    assert [row.timestampType for row in rows] == [1, 1]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_levels(batch: Batch, numbers: str, level: str) -> None:
    assert values(batch(numbers, kafka__isolation__level=level)) == list(range(1500))


def test_filters_leave_out_what_they_can(batch: Batch, numbers: str, dated: str) -> None:
    frame = batch(numbers, pushdown=True, maxRecordsPerPartition=100)
    assert frame.where("partition = 1").rdd.getNumPartitions() == 5
    narrow = frame.where("partition = 0 and offset >= 250 and offset < 260")
    assert narrow.rdd.getNumPartitions() == 1
    assert values(narrow) == list(range(250, 260))
    anew = batch(numbers, pushdown=True)
    assert values(anew.where("value = '77' or offset = 1")) == [1, 77, 1001]
    late = batch(dated, pushdown=True).where("timestamp >= timestamp '1970-01-01 00:00:08'")
    assert sorted(row.offset for row in late.collect()) == [7, 8, 9]
    assert frame.where("topic = 'another'").collect() == []


def test_spark_keeps_the_plan_of_the_last_filters_of_a_dataframe(
    batch: Batch, numbers: str
) -> None:
    """Why the README says to load a DataFrame with `pushdown` for one query only.

    Spark's planner keeps what the last filters left and asks nobody when a query on the same
    DataFrame has none. If this fails Spark has changed, and the warning can go.
    """
    frame = batch(numbers, pushdown=True)
    assert frame.where("partition = 1").count() == 500
    assert frame.count() == 500
    assert batch(numbers, pushdown=True).count() == 1500


def test_pushdown_without_sparks_own_switch_is_refused_by_spark(
    batch: Batch, spark: SparkSession, numbers: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert values(batch(numbers).where("offset < 5 and partition = 0")) == list(range(5))
        told = refused(batch(numbers, pushdown=True).where("offset < 5").collect)
        assert "spark.sql.python.filterPushdown.enabled" in told
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_records_that_are_gone(batch: Batch, cluster: LocalCluster) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = create(cluster, "spark-trimmed")
    publish(cluster, topic, (b"%d" % n for n in range(100)))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (done,) = admin.delete_records([TopicPartition(topic, 0, 40)]).values()
    assert done.result(30).low_watermark == 40
    begin = json.dumps({topic: {"0": 10}})
    assert values(batch(topic)) == list(range(40, 100))
    told = refused(batch(topic, startingOffsets=begin).collect)
    assert f"{topic}-0 now begins at offset 40: offsets 10 to 39 are gone" in told
    assert "failOnDataLoss=false" in told
    assert values(batch(topic, startingOffsets=begin, failOnDataLoss=False)) == list(range(40, 100))


def test_a_dataframe_is_planned_once(batch: Batch, cluster: LocalCluster) -> None:
    topic = create(cluster, "spark-frozen")
    publish(cluster, topic, [b"1"])
    frame = batch(topic)
    assert values(frame) == [1]
    publish(cluster, topic, [b"2"])
    assert values(frame) == [1]
    assert values(batch(topic)) == [1, 2]


def test_sql_views(spark: SparkSession, cluster: LocalCluster, numbers: str) -> None:
    spark.sql(
        "create or replace temporary view numbers using quire options ("
        f"kafka.bootstrap.servers '{cluster.bootstrap_servers}', subscribe '{numbers}')"
    )
    assert spark.sql("select count(*) as n from numbers").collect()[0].n == 1500


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "spark-nowhere", "fetchOffset__numRetries": 0},
         "there is no topic spark-nowhere: create it, or correct option subscribe"),
        ({"subscribePattern": "no-such-.*"}, "no topic matches subscribePattern"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "option endingOffsets"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "t", "kafka__auto__offset__reset": "latest"}, "use startingOffsets"),
        ({}, "give one of subscribe, subscribePattern and assign, not none"),
    ],
)  # fmt: skip
def test_mistakes_are_named(batch: Batch, options: dict[str, object], words: str) -> None:
    assert words in refused(lambda: batch(**options).collect())


def test_nobody_at_home(spark: SparkSession) -> None:
    frame = spark.read.format("quire").option("subscribe", "t").option("fetch.timeoutMs", "300")
    with pytest.raises(AnalysisException, match=r"asking 127.0.0.1:1 for topics failed for 0.3 s"):
        frame.option("kafka.bootstrap.servers", "127.0.0.1:1").load().collect()


def test_asking_creates_no_topic(batch: Batch, cluster: LocalCluster) -> None:
    refused(batch("spark-not-made", fetchOffset__numRetries=0).collect)

    async def names() -> list[str]:
        async with TopicAdmin(cluster.bootstrap_servers) as topics:
            return [listing.name for listing in await topics.listings()]

    assert "spark-not-made" not in asyncio.run(names())
