"""Ledger mode without Spark: plans and tasks against real brokers, bookies and ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from client.ledger import connect
from client.spark.brokers.kafka_cluster import LATEST, KafkaCluster
from client.spark.ledgers import ledger_access
from client.spark.options import Options
from client.spark.plan import ledger_mode
from client.spark.read.ledger_reader import read_split
from client.spark.read.task_reader import read_task
from client.spark.splits import (
    BrokerSplit,
    LedgerSplit,
    OffsetRange,
    Split,
    TaskSplits,
    TopicPartition,
)
from tests.integration.cluster import LocalCluster
from tests.integration.spark.topics import create, publish

SEGMENT_BYTES = 256 * 1024
RECORD_COUNT = 30_000
VALUE = b"%06d " + bytes(90)


@pytest.fixture(autouse=True)
def connections() -> Iterator[None]:
    """Close what a Spark worker would keep open."""
    yield
    for access in ledger_access._shared.values():
        access.close()
    ledger_access._shared.clear()


def options(cluster: LocalCluster, **more: object) -> Options:
    return Options(
        cluster.bootstrap_servers,
        columns=("value", "offset"),
        read_mode="ledger",
        metadata_service_uri=cluster.zookeeper,
        **{"partition_bytes_max": 400_000, **more},  # type: ignore[arg-type]
    )


def fill(cluster: LocalCluster, topic: str, count: int = RECORD_COUNT) -> OffsetRange:
    """Make a topic of many ledgers; return all of it."""
    create(cluster, topic, configs={"segment.bytes": str(SEGMENT_BYTES)})
    publish(cluster, topic, (VALUE % number for number in range(count)))
    return everything(cluster, topic)


def everything(cluster: LocalCluster, topic: str) -> OffsetRange:
    kafka = KafkaCluster(cluster.bootstrap_servers, 30_000)
    at = TopicPartition(topic, 0)
    topic_id = kafka.topics([topic])[topic].topic_id
    end = kafka.offsets({at: LATEST})[at]
    kafka.close()
    return OffsetRange(topic_id, topic, 0, 0, end)


def read(splits: Sequence[Split], settings: Options) -> list[tuple[int, bytes]]:
    return [
        (offset, value)
        for split in splits
        for rows in read_task(TaskSplits((split,)), settings)
        for value, offset in zip(*rows.to_pydict().values(), strict=True)
    ]


def expected(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, VALUE % number) for number in range(start, end)]


def test_a_partition_is_read_by_many_tasks(cluster: LocalCluster) -> None:
    whole = fill(cluster, "ledger-mode")
    settings = options(cluster)
    splits = ledger_mode.plan([whole], settings)
    direct = [split for split in splits if isinstance(split, LedgerSplit)]
    assert len({split.ledger_id for split in direct}) > 8
    assert len(direct) > 8
    assert sum(split.offset_end - split.offset_start for split in direct) > RECORD_COUNT * 0.9
    assert read(splits, settings) == expected(0, RECORD_COUNT)

    part = OffsetRange(whole.topic_id, whole.topic, 0, 12_345, 23_456)
    few = options(cluster, partition_count_min=20)
    splits = ledger_mode.plan([part], few)
    assert len(splits) >= 20
    assert read(splits, few) == expected(12_345, 23_456)


def test_positions_save_the_search_and_stay(cluster: LocalCluster) -> None:
    whole = fill(cluster, "ledger-positions", 3_000)
    settings = options(cluster)
    at = TopicPartition("ledger-positions", 0)
    half = OffsetRange(whole.topic_id, whole.topic, 0, 0, 1_500)
    hint = ledger_mode.locate([half], settings)[at]
    publish(cluster, whole.topic, (VALUE % number for number in range(3_000, 6_000)))
    assert ledger_mode.locate([half], settings)[at] == hint
    rest = OffsetRange(whole.topic_id, whole.topic, 0, 1_500, 6_000, hint)
    assert read(ledger_mode.plan([rest], settings), settings) == expected(1_500, 6_000)


def test_a_deleted_ledger_is_resolved_by_its_offsets(cluster: LocalCluster) -> None:
    whole = fill(cluster, "ledger-gone", 6_000)
    settings = options(cluster)
    splits = ledger_mode.plan([whole], settings)
    first = splits[0]
    assert isinstance(first, LedgerSplit)
    # What the bookies lose here the broker cannot have either: a split whose ledger never was
    # stands for one that retention or compaction removed after the plan was made.
    moved = LedgerSplit(**{**vars(first), "ledger_id": 1 << 40})
    rows = [row for batch in read_split(moved, settings) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == [*range(first.offset_start, first.offset_end)]


def test_a_deleted_topic_is_left_to_the_brokers(cluster: LocalCluster) -> None:
    settings = options(cluster)
    nowhere = OffsetRange("00000000-0000-0000-0000-000000000001", "ledger-nowhere", 0, 0, 10)
    (split,) = ledger_mode.plan([nowhere], settings)
    assert isinstance(split, BrokerSplit)
    assert (split.start, split.end) == (0, 10)


def test_planning_and_reading_fence_nobody(cluster: LocalCluster) -> None:
    whole = fill(cluster, "ledger-open", 2_000)
    settings = options(cluster)

    async def states() -> dict[int, str]:
        async with connect(cluster.zookeeper) as ledgers:
            listed = await access.segments(whole.topic_id, 0, 0, 2_000)
            return {
                one.ledger_id: (await ledgers.describe(one.ledger_id)).state.name for one in listed
            }

    access = ledger_access.shared(cluster.zookeeper, settings.ledger_speculative_ms)
    before = access.call(states())
    assert [*before.values()][-1] == "OPEN"
    assert read(ledger_mode.plan([whole], settings), settings) == expected(0, 2_000)
    assert access.call(states()) == before
    publish(cluster, whole.topic, [VALUE % 2_000])
    assert everything(cluster, whole.topic).end == 2_001


@pytest.mark.timeout(180)
def test_the_broker_and_a_bookie_die_while_tasks_read(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = start_cluster(brokers=1, flags=["--no-restart"])
    whole = fill(cluster, "ledger-survivor", 10_000)
    settings = options(cluster, ledger_in_flight_bytes_max=64 << 10)
    splits = ledger_mode.plan([whole], settings)
    direct = [split for split in splits if isinstance(split, LedgerSplit)]
    end = direct[-1].offset_end
    assert end > 9_000
    cluster.kill("broker-0")
    rows = read(direct[:1], settings)
    cluster.kill("bookie-0")
    assert rows + read(direct[1:], settings) == expected(0, end)
