"""What filters leave out."""

import datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from client.spark.plan.batch_scan import plan_batch
from client.spark.plan.pushdown import prune
from client.spark.splits import OffsetRange, TopicPartition
from tests.fakes.kafka_brokers import FakeBrokers
from tests.unit.client.spark.test_options import parse

ORDERS1 = TopicPartition("orders", 1)
TOPIC, PARTITION, OFFSET, TIME = ("topic",), ("partition",), ("offset",), ("timestamp",)


def at_ms(ms: int, us: int = 0) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(milliseconds=ms, microseconds=us)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([], True),
        ([EqualTo(TOPIC, "orders"), EqualTo(PARTITION, 1)], True),
        ([EqualTo(TOPIC, "orders"), EqualTo(PARTITION, 2)], False),
        ([In(PARTITION, (0, 2))], False),
        ([Not(In(PARTITION, (0, 2)))], True),
        ([Not(EqualTo(PARTITION, 1))], False),
        ([LessThan(PARTITION, 1)], False),
        ([StringStartsWith(TOPIC, "ord")], True),
        ([StringContains(TOPIC, "x")], False),
        ([IsNotNull(TOPIC)], True),
        ([Not(IsNotNull(TOPIC))], False),
        ([IsNull(PARTITION)], False),
        ([EqualTo(("key",), b"x"), EqualTo(("headers", "topic"), "x")], True),
    ],
)
def test_partitions(filters: list[Any], kept: bool) -> None:
    assert prune(filters).keeps(ORDERS1) == kept


@pytest.mark.parametrize(
    ("filters", "range_"),
    [
        ([], (10, 90)),
        ([EqualTo(OFFSET, 20)], (20, 21)),
        ([In(OFFSET, (40, 30, 35))], (30, 41)),
        ([GreaterThan(OFFSET, 20), LessThan(OFFSET, 30)], (21, 30)),
        ([GreaterThanOrEqual(OFFSET, 20), LessThanOrEqual(OFFSET, 30)], (20, 31)),
        ([LessThan(OFFSET, 5)], (10, 10)),
        ([Not(EqualTo(OFFSET, 20))], (10, 90)),
    ],
)
def test_offsets(filters: list[Any], range_: tuple[int, int]) -> None:
    narrow = prune(filters).narrow(OffsetRange("id", "orders", 1, 10, 90))
    assert (narrow.start, narrow.end) == range_


@pytest.mark.parametrize(
    ("filters", "since_ms"),
    [
        ([], None),
        ([GreaterThan(TIME, at_ms(1000))], 1000),
        ([GreaterThanOrEqual(TIME, at_ms(1000, 999))], 1000),
        ([EqualTo(TIME, at_ms(5)), GreaterThan(TIME, at_ms(3))], 5),
        ([In(TIME, (at_ms(9), at_ms(7)))], 7),
        ([LessThan(TIME, at_ms(1000))], None),
        ([Not(GreaterThan(TIME, at_ms(5)))], None),
    ],
)
def test_times(filters: list[Any], since_ms: int | None) -> None:
    assert prune(filters).since_ms == since_ms


def plan(brokers: FakeBrokers, *filters: Any, **options: str) -> list[tuple[int, int, int]]:
    tasks = plan_batch(brokers, parse(**options), prune(filters))  # type: ignore[arg-type]
    return [(part.partition, part.start, part.end) for task in tasks for part in task.parts]  # type: ignore[union-attr]


def test_a_pruned_plan() -> None:
    brokers = FakeBrokers()
    brokers.create("t", partitions=3, end=100)
    brokers.logs[TopicPartition("t", 2)].times = {1000: 40, 2000: 70}
    after = GreaterThan(TIME, at_ms(1500))
    assert plan(brokers) == [(0, 0, 100), (1, 0, 100), (2, 0, 100)]
    assert plan(brokers, after) == [(2, 70, 100)]
    assert plan(brokers, after, LessThan(OFFSET, 80)) == [(2, 70, 80)]
    assert plan(brokers, after, LessThan(OFFSET, 50)) == []
    assert plan(brokers, EqualTo(PARTITION, 1), endingOffsets='{"t":{"0":5,"1":6,"2":7}}') == [
        (1, 0, 6)
    ]
