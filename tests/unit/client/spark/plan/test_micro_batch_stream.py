"""A streaming query's driver, run against brokers in memory."""

import json
from typing import Any

import pytest

from client.spark.errors import DataLost, TopicMissing, TopicReplaced
from client.spark.options import parse_options
from client.spark.plan.micro_batch_stream import MicroBatchStream
from client.spark.splits import TaskSplits, TopicPartition
from tests.fakes.kafka_brokers import FakeBrokers
from tests.unit.client.spark.test_options import parse

A0, A1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Query:
    """Calls the hooks as Spark does, and keeps what Spark keeps."""

    def __init__(self, brokers: FakeBrokers, **options: str) -> None:
        self.brokers = brokers
        self.options = {"maxOffsetsPerTrigger": "1000000", **options}
        self.start: Any = None
        self.restart()

    def restart(self) -> None:
        self.slept: list[float] = []
        self.now_s = 0.0
        self.stream = MicroBatchStream(
            parse(streaming=True, **self.options),
            self.brokers,  # type: ignore[arg-type]
            now_s=lambda: self.now_s,
            sleep=self.slept.append,
        )

    def plan(self, limit: Any = "options") -> Any:
        """Ask for the next offset; None if there is no batch."""
        start = self.start if self.start is not None else self.stream.initial()
        end = self.stream.latest(start, limit)
        return None if json.dumps(end) == json.dumps(start) else (start, end)

    def batch(self, limit: Any = "options") -> list[tuple[int, int, int]] | None:
        planned = self.plan(limit)
        if planned is None:
            return None
        tasks = self.stream.tasks(*planned)
        self.start = planned[1]
        return read(tasks)


def read(tasks: list[TaskSplits]) -> list[tuple[int, int, int]]:
    return [(part.partition, part.start, part.end) for task in tasks for part in task.parts]  # type: ignore[union-attr]


@pytest.fixture
def brokers() -> FakeBrokers:
    made = FakeBrokers()
    made.create("t", partitions=2, end=50)
    return made


def test_a_stream_begins_at_the_end_and_reads_what_comes(brokers: FakeBrokers) -> None:
    query = Query(brokers)
    assert query.batch() is None
    brokers.logs[A0].end = 60
    assert query.batch() == [(0, 50, 60)]
    assert query.batch() is None
    brokers.logs[A1].end = 51
    assert query.batch() == [(1, 50, 51)]


def test_trap_1_a_first_batch_that_was_not_committed_is_read_again(brokers: FakeBrokers) -> None:
    query = Query(brokers)
    query.stream.initial()
    brokers.logs[A0].end = 100
    planned = query.plan()
    assert planned is not None
    brokers.logs[A0].end = 250
    query.restart()  # Spark has offsets/0, but no commits/0, and asks for the beginning again
    assert read(query.stream.tasks(query.stream.initial(), planned[1])) == [(0, 50, 100)]


def test_trap_1_also_when_retention_moved_the_beginning(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest")
    planned = query.plan()
    assert planned is not None
    brokers.logs[A0].start = 20
    query.restart()
    with pytest.raises(DataLost, match="t-0 now begins at offset 20: offsets 0 to 19 are gone"):
        query.stream.tasks(query.stream.initial(), planned[1])


def test_trap_2_a_standing_log_gives_the_very_same_text(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest")
    query.batch()
    kept = json.loads(json.dumps(query.start))
    query.restart()
    query.start = kept
    assert json.dumps(query.stream.latest(kept, "options")) == json.dumps(kept)
    shuffled = {name: kept[name] for name in reversed(kept)}
    assert json.dumps(query.stream.latest(shuffled, "options")) == json.dumps(shuffled)


def test_trap_3_nothing_depends_on_a_stop_that_never_comes(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest")
    first = query.batch()
    query.restart()  # killed without a word
    brokers.logs[A0].end = 55
    assert first == [(0, 0, 50), (1, 0, 50)]
    assert query.batch() == [(0, 50, 55)]


def test_trap_4_commit_is_only_a_fall_back(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest", commitGroupId="g")
    query.batch()
    query.stream.commit(query.start)
    assert brokers.committed == {"g": {A0: 50, A1: 50}}
    # that of the last batch never comes from Spark: see test_listener.py


def test_the_initial_offset_is_asked_twice_and_told_once(brokers: FakeBrokers) -> None:
    query = Query(brokers)
    first = query.stream.initial()
    brokers.logs[A0].end = 90
    assert query.stream.initial() is first


def test_limits_hold_unless_spark_wants_everything(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert query.batch() == [(0, 0, 5), (1, 0, 5)]
    assert query.batch(limit="none") == [(0, 5, 50), (1, 5, 50)]


def test_a_limit_in_bytes(brokers: FakeBrokers) -> None:
    brokers.record_bytes = 1000
    query = Query(brokers, startingOffsets="earliest", maxBytesPerTrigger="20000")
    assert query.batch() == [(0, 0, 10), (1, 0, 10)]


def test_what_is_reported_is_the_end_of_the_logs_whatever_a_batch_takes(
    brokers: FakeBrokers,
) -> None:
    query = Query(brokers, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert query.stream.report() is None
    query.batch()
    assert query.stream.report() == {"$quire": {"v": 1}, "t": {"0": 50, "1": 50}}


def test_available_now_reads_what_is_there_and_ends(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest", maxOffsetsPerTrigger="60",
                  minOffsetsPerTrigger="1000")  # fmt: skip
    query.stream.stop_at_what_is_there()
    brokers.logs[A0].end = 99
    brokers.logs[TopicPartition("t", 2)] = brokers.logs[A1]
    assert query.batch() == [(0, 0, 30), (1, 0, 30)]
    assert query.batch() == [(0, 30, 50), (1, 30, 50)]
    assert query.batch() is None


def test_available_now_leaves_topics_that_come_meanwhile_to_the_next_run() -> None:
    brokers = FakeBrokers()
    brokers.create("t.old", end=5)
    query = Query(brokers)
    options = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "t[.].*",
               "startingOffsets": "earliest"}  # fmt: skip
    query.stream = MicroBatchStream(parse_options(options, streaming=True), brokers)  # type: ignore[arg-type]
    query.stream.stop_at_what_is_there()
    brokers.create("t.new", end=5)
    query.start = query.stream.initial()
    query.start = {name: query.start[name] for name in query.start if name != "t.new"}
    del query.start["$quire"]["ids"]["t.new"], query.start["$quire"]["base"]["t.new"]
    assert query.batch() == [(0, 0, 5)]
    assert query.batch() is None
    assert set(query.start["$quire"]["ids"]) == {"t.old"}


def test_a_new_partition_is_read_from_its_beginning(brokers: FakeBrokers) -> None:
    query = Query(brokers)
    assert query.batch() is None
    brokers.create("u", end=0)
    brokers.logs[TopicPartition("t", 2)] = brokers.logs.pop(TopicPartition("u", 0))
    brokers.logs[TopicPartition("t", 2)].end = 7
    planned = query.plan()
    assert planned is not None
    query.restart()
    assert read(query.stream.tasks(query.stream.initial(), planned[1])) == [(2, 0, 7)]


def test_a_new_partition_whose_beginning_is_gone_already(brokers: FakeBrokers) -> None:
    query = Query(brokers)
    query.batch()
    query.start = query.stream.initial()
    brokers.logs[TopicPartition("t", 2)] = brokers.logs[A0]
    brokers.logs[A0].start = 5
    with pytest.raises(DataLost, match="the new partition t-2 begins at offset 5"):
        query.plan()


def test_topics_that_begin_to_match_the_pattern_are_read_from_their_beginning() -> None:
    brokers = FakeBrokers()
    query = Query(brokers)
    options = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "logs[.].*"}
    query.stream = MicroBatchStream(parse_options(options, streaming=True), brokers)  # type: ignore[arg-type]
    assert query.batch() is None
    brokers.create("logs.a", end=3)
    brokers.create("metrics", end=3)
    brokers.create("__logs.internal", end=3)
    assert query.batch() == [(0, 0, 3)]
    assert set(query.start) == {"$quire", "logs.a"}
    brokers.create("logs.b", end=4)
    assert query.batch() == [(0, 0, 4)]


def test_retention_below_a_running_query(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query.batch()
    brokers.logs[A0].start = 20
    planned = query.plan()
    assert planned is not None
    with pytest.raises(DataLost) as caught:
        query.stream.tasks(*planned)
    assert "t-0 now begins at offset 20: offsets 5 to 9 are gone" in str(caught.value)
    assert "failOnDataLoss=false" in str(caught.value)
    query.options["failOnDataLoss"] = "false"
    query.restart()
    assert read(query.stream.tasks(*planned)) == [(1, 5, 10)]


def test_a_topic_that_was_deleted_and_made_again_is_an_error(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest")
    query.batch()
    brokers.delete("t")
    brokers.create("t", partitions=2, end=80)  # it has grown past the checkpoint already
    with pytest.raises(TopicReplaced, match="topic t was deleted and created again"):
        query.plan()


def test_so_it_is_for_a_batch_that_is_planned_again(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest")
    planned = query.plan()
    assert planned is not None
    brokers.delete("t")
    brokers.create("t", partitions=2, end=80)
    query.restart()
    with pytest.raises(TopicReplaced):
        query.stream.tasks(*planned)
    query.options["failOnDataLoss"] = "false"
    query.restart()
    assert query.stream.tasks(*planned) == []
    query.start = planned[1]
    assert query.batch() == [(0, 0, 80), (1, 0, 80)]


def test_without_fail_on_data_loss_the_new_topic_is_read_from_its_beginning(
    brokers: FakeBrokers,
) -> None:
    query = Query(brokers, startingOffsets="earliest", failOnDataLoss="false")
    query.batch()
    brokers.delete("t")
    brokers.create("t", partitions=2, end=80)
    assert query.batch() == [(0, 0, 80), (1, 0, 80)]
    assert query.batch() is None


def test_a_topic_that_is_gone(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest", fetchOffset__retryIntervalMs="1")
    query.batch()
    brokers.delete("t")
    with pytest.raises(DataLost, match=r"t-0, t-1 no longer exists.* up to offset 50"):
        query.plan()


def test_a_topic_that_was_never_there() -> None:
    query = Query(FakeBrokers(), fetchOffset__retryIntervalMs="1")
    with pytest.raises(TopicMissing, match="there is no topic t: create it, or correct option"):
        query.stream.initial()


def test_a_log_that_seems_to_shrink_is_asked_again(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest")
    query.batch()
    brokers.logs[A0].end = 40
    with pytest.raises(DataLost, match="t-0 ends at offset 40, but had been read up to 50"):
        query.plan()
    assert query.slept == [1.0, 1.0, 1.0]
    query.options["failOnDataLoss"] = "false"
    query.restart()
    assert query.batch() is None


def test_many_records_ask_for_sizes_once_in_a_while(brokers: FakeBrokers) -> None:
    brokers.logs[A0].end = 10**6
    query = Query(brokers, startingOffsets="earliest", maxOffsetsPerTrigger="200000")
    query.batch()
    query.batch()
    assert brokers.asked.count("sizes") == 1
    query.now_s = 31.0
    query.batch()
    assert brokers.asked.count("sizes") == 2


def test_a_quiet_stream_asks_brokers_little(brokers: FakeBrokers) -> None:
    query = Query(brokers, startingOffsets="earliest")
    query.batch()
    brokers.logs[A0].end = 51
    del brokers.asked[:]
    query.batch()
    assert brokers.asked == ["topics", "offsets", "topics", "offsets"]
