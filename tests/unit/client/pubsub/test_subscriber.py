"""The subscriber over a fake aiokafka consumer: settings, commits, end and failures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    KafkaConnectionError,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import ConsumerRecord, TopicPartition

from client.errors import ConfigError
from client.pubsub import brokers
from client.pubsub import subscriber as module
from client.pubsub.errors import (
    BrokerUnreachable,
    CommitFailed,
    InvalidTopic,
    PubSubError,
    TopicNotFound,
)
from client.pubsub.subscriber import Positions, Record, Subscriber

TP = TopicPartition("t", 1)


class FakeConsumer:
    """Stands in for AIOKafkaConsumer: hands out `records`, raises `error` where one is set."""

    made: list[FakeConsumer]
    start_error: Exception | None
    error: Exception | None

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.records: list[ConsumerRecord[bytes, bytes]] = []
        self.commits = 0
        self.committed_offset: int | None = None
        self.sought: int | str | None = None
        position = SimpleNamespace(offset=8)
        assignment = SimpleNamespace(all_consumed_offsets=lambda: {TP: position})
        self._subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
        self._coordinator = SimpleNamespace(member_id="me", generation=4)
        self.stopped = False
        self.made.append(self)

    def subscribe(self, topics: tuple[str, ...], listener: Any) -> None:
        self.topics = topics
        self.listener = listener

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error
        self.listener.on_partitions_revoked(set())
        self.listener.on_partitions_assigned({TP})

    async def stop(self) -> None:
        self.stopped = True

    def assignment(self) -> set[TopicPartition]:
        return {TP}

    async def committed(self, at: TopicPartition) -> int | None:
        return self.committed_offset

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.sought = offset

    async def seek_to_beginning(self, at: TopicPartition) -> None:
        self.sought = "beginning"

    async def seek_to_end(self, at: TopicPartition) -> None:
        self.sought = "end"

    async def getone(self) -> ConsumerRecord[bytes, bytes]:
        if self.error is not None:
            raise self.error
        if not self.records:
            raise ConsumerStoppedError
        return self.records.pop(0)

    async def getmany(
        self, *, timeout_ms: int, max_records: int
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        if self.error is not None:
            raise self.error
        batch, self.records = self.records[:max_records], self.records[max_records:]
        return {TP: batch} if batch else {}

    async def commit(self) -> None:
        if self.error is not None:
            raise self.error
        self.commits += 1


def _record(offset: int) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("t", 1, offset, 1234, 0, b"k", b"v", None, 1, 1, (("h", b"x"),))


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> list[FakeConsumer]:
    FakeConsumer.made = []
    FakeConsumer.start_error = None
    FakeConsumer.error = None
    monkeypatch.setattr(module, "AIOKafkaConsumer", FakeConsumer)
    return FakeConsumer.made


async def test_commits_nothing_by_itself_and_begins_with_the_earliest(
    fakes: list[FakeConsumer],
) -> None:
    async with Subscriber("t", group="g") as subscriber:
        assert subscriber.assignment == [("t", 1)]
    settings = fakes[0].settings
    assert settings["enable_auto_commit"] is False
    assert settings["auto_offset_reset"] == "earliest"
    assert settings["isolation_level"] == "read_uncommitted"
    assert fakes[0].commits == 0
    assert fakes[0].stopped


async def test_iterates_until_closed(fakes: list[FakeConsumer]) -> None:
    async with Subscriber("t", group="g") as subscriber:
        fakes[0].records = [_record(5), _record(6)]
        records = [record async for record in subscriber]
        await subscriber.commit()
    assert records[0] == Record("t", 1, 5, 1234, b"k", b"v", (("h", b"x"),))
    assert [record.offset for record in records] == [5, 6]
    assert fakes[0].commits == 1


async def test_batches(fakes: list[FakeConsumer]) -> None:
    async with Subscriber("t") as subscriber:
        fakes[0].records = [_record(5), _record(6), _record(7)]
        assert [record.offset for record in await subscriber.next_batch(records_max=2)] == [5, 6]
        assert [record.offset for record in await subscriber.next_batch()] == [7]
        assert await subscriber.next_batch() == []


async def test_tells_its_partitions_after_each_rebalance() -> None:
    assigned: list[list[tuple[str, int]]] = []
    async with Subscriber("t", group="g", on_assigned=assigned.append):
        assert assigned == [[("t", 1)]]


async def test_a_lost_membership_fails_the_commit() -> None:
    async with Subscriber("t", group="g") as subscriber:
        FakeConsumer.error = CommitFailedError("rebalanced")
        with pytest.raises(CommitFailed, match="rebalanced"):
            await subscriber.commit()


async def test_errors_while_reading_are_ours() -> None:
    async with Subscriber("t", group="g") as subscriber:
        FakeConsumer.error = UnknownTopicOrPartitionError()
        with pytest.raises(TopicNotFound, match="subscribing to t failed"):
            await anext(subscriber)
        with pytest.raises(TopicNotFound):
            await subscriber.next_batch()


async def test_a_lone_reader_has_nothing_to_commit() -> None:
    async with Subscriber("t") as subscriber:
        with pytest.raises(PubSubError, match="without a group"):
            await subscriber.commit()


@pytest.mark.parametrize(
    ("cause", "error", "words"),
    [
        (KafkaConnectionError("x"), BrokerUnreachable, "nothing listens"),
        (UnknownTopicOrPartitionError(), TopicNotFound, "subscribing to t failed"),
        (TimeoutError(), BrokerUnreachable, "no partitions of t were assigned in time"),
    ],
)
async def test_a_failed_start_disconnects_and_says_why(
    fakes: list[FakeConsumer],
    monkeypatch: pytest.MonkeyPatch,
    cause: Exception,
    error: type[PubSubError],
    words: str,
) -> None:
    async def why(_: str) -> str:
        return "nothing listens at h:1"

    monkeypatch.setattr(brokers, "why_unreachable", why)
    FakeConsumer.start_error = cause
    with pytest.raises(error, match=words):
        await Subscriber("t", group="g").start()
    assert fakes[0].stopped


async def test_must_be_started_and_needs_real_topic_names() -> None:
    with pytest.raises(PubSubError, match="not started"):
        await Subscriber("t").next_batch()
    with pytest.raises(InvalidTopic):
        Subscriber("a/b")


async def test_positions_name_the_member(fakes: list[FakeConsumer]) -> None:
    async with Subscriber("t", group="g") as subscriber:
        assert subscriber.positions() == Positions("g", {("t", 1): 8}, "me", 4)
    async with Subscriber("t") as alone:
        with pytest.raises(PubSubError, match="no positions"):
            alone.positions()


@pytest.mark.parametrize(
    ("committed", "start", "sought"),
    [
        (0, "earliest", 0),
        (7, "latest", 7),
        (None, "earliest", "beginning"),
        (None, "latest", "end"),
    ],
)
async def test_rewind_goes_to_what_is_committed_or_to_the_start(
    fakes: list[FakeConsumer], committed: int | None, start: Any, sought: int | str
) -> None:
    async with Subscriber("t", group="g", start=start) as subscriber:
        fakes[0].committed_offset = committed
        await subscriber.rewind()
    assert fakes[0].sought == sought


def test_an_isolation_level_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="isolation_level 'serializable'"):
        Subscriber("t", isolation_level="serializable")  # type: ignore[arg-type]
