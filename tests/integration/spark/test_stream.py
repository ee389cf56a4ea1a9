"""Streaming queries with real Spark on a real cluster: options, restarts, lag."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from client.spark.listener import QuireListener
from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.spark.conftest import Runs
from tests.integration.spark.topics import create, publish

Stream = Callable[..., DataStreamReader]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def batch_sizes(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


def failure(query: StreamingQuery) -> str:
    with pytest.raises(Exception) as caught:
        query.awaitTermination(100)
    return str(caught.value)


def test_available_now_in_limited_batches_and_again(
    stream: Stream, runs: Runs, cluster: LocalCluster
) -> None:
    topic = create(cluster, "stream-limits", partition_count=2)
    for index in (0, 1):
        publish(cluster, topic, numbers(0, 100), partition=index)
    source = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=80).load()
    assert batch_sizes(runs.finish(source)) == [80, 80, 40]
    assert runs.values() == numbers(0, 100) * 2
    publish(cluster, topic, numbers(100, 120), partition=1)
    assert batch_sizes(runs.finish(source)) == [20]
    assert runs.values() == numbers(0, 100) + numbers(0, 120)


def test_a_limit_in_bytes(stream: Stream, runs: Runs, cluster: LocalCluster) -> None:
    topic = create(cluster, "stream-bytes")
    publish(cluster, topic, [bytes(1000)] * 200, batch_records=1)
    source = stream(topic, startingOffsets="earliest", maxBytesPerTrigger="100k").load()
    sizes = batch_sizes(runs.finish(source))
    assert sum(sizes) == 200
    assert len(sizes) in (3, 4)


def test_a_running_query_reads_what_comes(
    stream: Stream, runs: Runs, spark: SparkSession, cluster: LocalCluster
) -> None:
    """Latest, new partitions, and a lower limit that holds records back until enough came."""
    topic = create(cluster, "stream-grows")
    publish(cluster, topic, numbers(0, 10))
    begun: list[str] = []
    source = stream(topic, minOffsetsPerTrigger=5, maxTriggerDelay="10m").load()

    def note(frame: Any, number: int) -> None:
        begun.extend(sorted(bytes(row.value).decode() for row in frame.collect()))

    query = (
        source.writeStream.foreachBatch(note)
        .option("checkpointLocation", str(runs.checkpoint)).start()
    )  # fmt: skip
    try:
        wait_until(lambda: query.status["message"].startswith("Waiting for data"), "the query")
        publish(cluster, topic, numbers(10, 12))
        wait_until(lambda: len(begun) == 2, "the first batch")
        publish(cluster, topic, numbers(12, 14))  # too few
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        publish(cluster, topic, numbers(14, 20), partition=1)
        wait_until(lambda: len(begun) >= 10, "the rest")
    finally:
        query.stop()
    assert sorted(map(int, begun)) == list(range(10, 20))


def test_topics_that_come_to_match_the_pattern(
    stream: Stream, runs: Runs, cluster: LocalCluster
) -> None:
    publish(cluster, create(cluster, "pattern-a"), numbers(0, 3))
    source = stream(subscribePattern="pattern-.*", startingOffsets="earliest").load()
    runs.finish(source)
    publish(cluster, create(cluster, "pattern-b"), numbers(3, 6))
    runs.finish(source)
    assert sorted(runs.values()) == numbers(0, 6)


def test_a_topic_that_was_deleted_and_made_again_is_an_error(
    stream: Stream, runs: Runs, cluster: LocalCluster
) -> None:
    topic = create(cluster, "stream-again")
    publish(cluster, topic, numbers(0, 10))
    runs.finish(stream(topic, startingOffsets="earliest").load())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)

    def made_again() -> bool:
        try:
            create(cluster, topic)
        except Exception:
            return False
        return True

    wait_until(made_again, "the topic to be deleted and created again")
    publish(cluster, topic, numbers(100, 150))  # more than the query has read of the old one
    query = runs.start(stream(topic, startingOffsets="earliest").load(), now=True)
    assert f"topic {topic} was deleted and created again" in failure(query)
    runs.finish(stream(topic, startingOffsets="earliest", failOnDataLoss=False).load())
    assert sorted(map(int, runs.values())) == [*range(10), *range(100, 150)]


def test_retention_under_a_query(stream: Stream, runs: Runs, cluster: LocalCluster) -> None:
    topic = create(cluster, "stream-trimmed")
    publish(cluster, topic, numbers(0, 50))
    limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 1000}
    runs.finish(stream(topic, **limited).load())
    publish(cluster, topic, numbers(50, 100))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (done,) = admin.delete_records([TopicPartition(topic, 0, 70)]).values()
    done.result(30)
    told = failure(runs.start(stream(topic, **limited).load(), now=True))
    assert f"{topic}-0 now begins at offset 70: offsets 50 to 69 are gone" in told
    runs.finish(stream(topic, failOnDataLoss=False, **limited).load())
    assert runs.values() == numbers(0, 50) + numbers(70, 100)


def test_lag_and_group_offsets(
    stream: Stream, runs: Runs, spark: SparkSession, cluster: LocalCluster
) -> None:
    """Trap 4: the last batch of a run is stored as well, by the listener; not by the source."""
    topic = create(cluster, "stream-lag")
    publish(cluster, topic, numbers(0, 30))
    told: list[int] = []
    listener = QuireListener(
        cluster.bootstrap_servers,
        commit_group_id="stream-lag-listener",
        on_lag=lambda _name, lags: told.append(sum(lags.values())),
    )
    spark.streams.addListener(listener)
    try:
        source = stream(
            topic, startingOffsets="earliest", maxOffsetsPerTrigger=20,
            commitGroupId="stream-lag-source",
        )  # fmt: skip
        runs.finish(source.load())
        wait_until(lambda: told == [10, 0], "both progress reports")
    finally:
        spark.streams.removeListener(listener)

    def committed(group: str) -> int:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
        try:
            return int(consumer.committed([TopicPartition(topic, 0)], timeout=30)[0].offset)
        finally:
            consumer.close()

    assert committed("stream-lag-listener") == 30
    assert committed("stream-lag-source") == 20


def test_trap_1_an_initial_offset_that_is_asked_again_loses_nothing(
    stream: Stream, runs: Runs, cluster: LocalCluster
) -> None:
    """As if the driver died after offsets/0 was written and before commits/0 was."""
    topic = create(cluster, "stream-trap-1")
    publish(cluster, topic, numbers(0, 50))
    source = stream(topic, startingOffsets=json.dumps({topic: {"0": 20}})).load()
    runs.finish(source)
    for leftover in ("commits/0", "commits/.0.crc"):
        (runs.checkpoint / leftover).unlink()
    for written in runs.parquet.rglob("*.parquet"):
        written.unlink()
    for logged in (runs.parquet / "_spark_metadata").iterdir():
        logged.unlink()
    publish(cluster, topic, numbers(50, 60))
    runs.finish(stream(topic, startingOffsets="latest").load())
    assert runs.values() == numbers(20, 60)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets has no meaning for a stream query"),
        ({"startingOffsets": '{"stream-limits":{"7":0}}'}, "must name exactly the partitions"),
        ({"maxOffsetsPerTrigger": "many"}, "option maxOffsetsPerTrigger: 'many'"),
    ],
)
def test_mistakes_are_named(
    stream: Stream, runs: Runs, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception) as caught:
        runs.start(stream("stream-limits", **options).load()).awaitTermination(100)
    assert words in str(caught.value)
