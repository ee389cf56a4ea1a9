"""Which partitions are read, from where to where."""

import pytest

from client.errors import ConfigError
from client.spark.errors import TopicMissing
from client.spark.options import Options, parse_options
from client.spark.plan.batch_scan import plan_batch
from client.spark.plan.bounds import ending, partitions_of, require_topics, select_topics, starting
from client.spark.plan.pushdown import Pruning
from client.spark.splits import TopicPartition
from tests.fakes.kafka_brokers import FakeBrokers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def brokers() -> FakeBrokers:
    made = FakeBrokers()
    made.create("t", partitions=2, end=50)
    made.logs[T0].start = 10
    made.logs[T0].times = {1000: 20, 2000: 30}
    made.logs[T1].times = {1000: 25}
    made.create("tango", end=5)
    made.create("__consumer_offsets", end=5)
    return made


def parsed(streaming: bool = False, **given: str) -> Options:
    where = {"kafka.bootstrap.servers": "h:1", "fetchOffset.retryIntervalMs": "1"}
    return parse_options({**where, **given}, streaming=streaming)


def selected(brokers: FakeBrokers, **given: str) -> list[TopicPartition]:
    options = parsed(streaming=True, **given)
    topics = select_topics(brokers, options)  # type: ignore[arg-type]
    require_topics(topics, options)
    return partitions_of(topics)


def test_topics_by_name_pattern_and_partition(brokers: FakeBrokers) -> None:
    tango = TopicPartition("tango", 0)
    assert selected(brokers, subscribe="tango,t") == [T0, T1, tango]
    assert selected(brokers, subscribePattern="t.*") == [T0, T1, tango]
    assert selected(brokers, subscribePattern="t") == [T0, T1]
    assert selected(brokers, assign='{"t":[1],"tango":[0]}') == [T1, tango]


def test_the_clusters_own_topics_match_no_pattern(brokers: FakeBrokers) -> None:
    with pytest.raises(TopicMissing, match="no topic matches subscribePattern"):
        selected(brokers, subscribePattern="__.*")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "t,x"}, "there is no topic x: create it, or correct option subscribe"),
        ({"assign": '{"x":[0]}'}, "correct option assign"),
        ({"assign": '{"t":[5]}'}, "topic t has no partition 5"),
    ],
)
def test_what_is_missing_is_named(brokers: FakeBrokers, given: dict[str, str], words: str) -> None:
    with pytest.raises(TopicMissing) as caught:
        selected(brokers, **given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"startingOffsets": "earliest"}, {T0: 10, T1: 0}),
        ({"startingOffsets": "latest"}, {T0: 50, T1: 50}),
        ({"startingOffsets": '{"t":{"0":-2,"1":7}}'}, {T0: 10, T1: 7}),
        ({"startingOffsets": '{"t":{"0":-1,"1":-1}}'}, {T0: 50, T1: 50}),
        ({"startingTimestamp": "1000"}, {T0: 20, T1: 25}),
        ({"startingOffsetsByTimestamp": '{"t":{"0":2000,"1":500}}'}, {T0: 30, T1: 25}),
        (
            {"startingTimestamp": "1500", "startingOffsetsByTimestampStrategy": "latest"},
            {T0: 30, T1: 50},
        ),
        (  # a timestamp for all wins over timestamps for each, and those over offsets
            {
                "startingTimestamp": "1000",
                "startingOffsetsByTimestamp": '{"t":{"0":9,"1":9}}',
                "startingOffsets": "latest",
            },
            {T0: 20, T1: 25},
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":2000,"1":1}}',
                "startingOffsets": "latest",
            },
            {T0: 30, T1: 25},
        ),
    ],
)
def test_where_reading_begins(
    brokers: FakeBrokers, given: dict[str, str], found: dict[TopicPartition, int]
) -> None:
    options = parsed(streaming=True, subscribe="t", **given)
    assert starting(brokers, options, [T0, T1]) == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {T0: 50, T1: 50}),
        ({"endingOffsets": '{"t":{"0":-1,"1":7}}'}, {T0: 50, T1: 7}),
        ({"endingTimestamp": "1500"}, {T0: 30, T1: 50}),
        ({"endingOffsetsByTimestamp": '{"t":{"0":1000,"1":1000}}'}, {T0: 20, T1: 25}),
    ],
)
def test_where_a_batch_ends(
    brokers: FakeBrokers, given: dict[str, str], found: dict[TopicPartition, int]
) -> None:
    assert ending(brokers, parsed(subscribe="t", **given), [T0, T1]) == found  # type: ignore[arg-type]


def test_a_time_after_the_last_record_is_an_error_unless_told_otherwise(
    brokers: FakeBrokers,
) -> None:
    options = parsed(streaming=True, subscribe="t", startingTimestamp="1500")
    with pytest.raises(ConfigError, match="t-1 has no record at or after 1500"):
        starting(brokers, options, [T0, T1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ('{"t":{"0":5}}', "it lacks t-1"),
        ('{"t":{"0":5,"1":5,"2":5}}', "there is no t-2"),
        ('{"t":{"0":5},"u":{"0":5}}', "it lacks t-1; there is no u-0"),
    ],
)
def test_offsets_must_name_exactly_what_is_read(
    brokers: FakeBrokers, tree: str, words: str
) -> None:
    options = parsed(streaming=True, subscribe="t", startingOffsets=tree)
    with pytest.raises(ConfigError, match="option startingOffsets must name exactly") as caught:
        starting(brokers, options, [T0, T1])  # type: ignore[arg-type]
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": '{"t":{"0":40,"1":9}}', "endingOffsets": '{"t":{"0":30,"1":9}}'},
         "t-0: reading would begin at offset 40, after its end at 30"),
        ({"endingOffsets": '{"t":{"0":30,"1":90}}'},
         "t-1 ends at offset 50, but the ending options say 90"),
        ({"startingOffsets": '{"t":{"0":3,"1":9}}'},
         "t-0 now begins at offset 10: offsets 3 to 9 are gone"),
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_read(
    brokers: FakeBrokers, given: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match="t-") as caught:
        plan_batch(brokers, parsed(subscribe="t", **given), Pruning())  # type: ignore[arg-type]
    assert words in str(caught.value)
