"""The publisher over a fake aiokafka producer: settings, outcomes, failures, goodbye."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, OutOfOrderSequenceNumber
from aiokafka.structs import RecordMetadata, TopicPartition

from client.errors import ConfigError
from client.pubsub import brokers
from client.pubsub import publisher as module
from client.pubsub.errors import (
    BrokerUnreachable,
    InvalidTopic,
    PublishFailed,
    PubSubError,
    RecordTooLarge,
    TopicNotFound,
)
from client.pubsub.publisher import RECORD_SIZE_MAX, Address, Publisher


class FakeProducer:
    """Stands in for AIOKafkaProducer: keeps what it was sent; the test answers."""

    made: list[FakeProducer]
    refuse: bool

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.futures: list[asyncio.Future[RecordMetadata]] = []
        self.stopped = False
        self.hang_on_stop = False
        sender_task = asyncio.get_running_loop().create_future()
        self._sender = SimpleNamespace(sender_task=sender_task)
        self.client = SimpleNamespace(close=self._close_client)
        self.made.append(self)

    async def start(self) -> None:
        if self.refuse:
            raise KafkaConnectionError("Unable to bootstrap")

    async def stop(self) -> None:
        if self.hang_on_stop:
            await asyncio.get_running_loop().create_future()
        self._sender.sender_task.cancel()
        self.stopped = True

    async def _close_client(self) -> None:
        self.stopped = True

    async def flush(self) -> None:
        await asyncio.wait(self.futures)

    async def partitions_for(self, topic: str) -> set[int]:
        if topic == "absent":
            await asyncio.get_running_loop().create_future()
        return {0, 1}

    async def send(self, *_: object, **__: object) -> asyncio.Future[RecordMetadata]:
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def acknowledge(self, index: int, offset: int) -> None:
        tp = TopicPartition("t", 0)
        self.futures[index].set_result(RecordMetadata("t", 0, tp, offset, 1234, 0, 0))


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    FakeProducer.made = []
    FakeProducer.refuse = False
    monkeypatch.setattr(module, "AIOKafkaProducer", FakeProducer)
    monkeypatch.setattr(module, "TOPIC_TIMEOUT_S", 0.01)
    monkeypatch.setattr(module, "_ABANDON_TIMEOUT_S", 0.01)
    return FakeProducer.made


async def test_is_idempotent_and_waits_for_the_ack_quorum(fakes: list[FakeProducer]) -> None:
    async with Publisher("h:1"):
        settings = fakes[0].settings
    assert settings["enable_idempotence"] is True
    assert settings["acks"] == "all"
    assert fakes[0].stopped


async def test_publish_returns_the_address(fakes: list[FakeProducer]) -> None:
    async with Publisher("h:1") as publisher:
        task = asyncio.create_task(publisher.publish("t", b"v", key=b"k"))
        await asyncio.sleep(0)
        assert publisher.unacknowledged == 1
        fakes[0].acknowledge(0, 7)
        assert await task == Address("t", 0, 7, 1234)
        assert publisher.unacknowledged == 0


async def test_publish_raises_when_the_broker_refuses(fakes: list[FakeProducer]) -> None:
    async with Publisher("h:1") as publisher:
        task = asyncio.create_task(publisher.publish("t", b"v"))
        await asyncio.sleep(0)
        fakes[0].futures[0].set_exception(OutOfOrderSequenceNumber())
        with pytest.raises(PublishFailed, match="publishing to t failed"):
            await task


async def test_enqueue_tells_every_outcome_once(fakes: list[FakeProducer]) -> None:
    outcomes: list[Address | PubSubError] = []
    async with Publisher("h:1") as publisher:
        await publisher.enqueue("t", b"1", on_done=outcomes.append)
        await publisher.enqueue("t", b"2", on_done=outcomes.append)
        fakes[0].acknowledge(0, 0)
        fakes[0].futures[1].set_exception(OutOfOrderSequenceNumber())
        await publisher.flush()
    assert outcomes[0] == Address("t", 0, 0, 1234)
    assert isinstance(outcomes[1], PublishFailed)


async def test_a_failure_nobody_asked_for_fails_the_next_flush(fakes: list[FakeProducer]) -> None:
    async with Publisher("h:1") as publisher:
        await publisher.enqueue("t", b"1")
        fakes[0].futures[0].set_exception(OutOfOrderSequenceNumber())
        with pytest.raises(PublishFailed):
            await publisher.flush()
        await publisher.flush()


async def test_a_fast_source_lets_others_run(fakes: list[FakeProducer]) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async with Publisher("h:1") as publisher:
        for _ in range(500):
            await publisher.enqueue("t", b"1")
    task.cancel()
    assert turns >= 10


async def test_close_says_how_many_records_are_unacknowledged(fakes: list[FakeProducer]) -> None:
    publisher = Publisher("h:1")
    await publisher.start()
    await publisher.enqueue("t", b"1")
    fakes[0].hang_on_stop = True
    with pytest.raises(PublishFailed, match="1 records were not acknowledged in time"):
        await publisher.close(timeout_s=0.01)
    assert fakes[0].stopped


async def test_an_exception_in_the_block_is_not_hidden_by_the_goodbye(
    fakes: list[FakeProducer],
) -> None:
    with pytest.raises(KeyError):
        async with Publisher("h:1") as publisher:
            await publisher.enqueue("t", b"1")
            fakes[0].hang_on_stop = True
            raise KeyError
    assert fakes[0].stopped


async def test_says_that_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def why(_: str) -> str:
        return "nothing listens at h:1"

    monkeypatch.setattr(brokers, "why_unreachable", why)
    FakeProducer.refuse = True
    with pytest.raises(BrokerUnreachable, match=r"^nothing listens at h:1$"):
        await Publisher("h:1").start()


async def test_refuses_before_sending_what_cannot_succeed(fakes: list[FakeProducer]) -> None:
    async with Publisher("h:1") as publisher:
        with pytest.raises(RecordTooLarge, match="larger than the limit"):
            await publisher.publish("t", bytes(RECORD_SIZE_MAX + 1))
        with pytest.raises(TopicNotFound, match="has no partition 2"):
            await publisher.publish("t", b"v", partition=2)
        with pytest.raises(TopicNotFound, match="there is no topic absent"):
            await publisher.publish("absent", b"v")
        with pytest.raises(InvalidTopic):
            await publisher.publish("a/b", b"v")
        with pytest.raises(ValueError, match="a key or a value"):
            await publisher.publish("t", None)
    assert fakes[0].futures == []


async def test_must_be_started_and_needs_addresses() -> None:
    with pytest.raises(PubSubError, match="not started"):
        await Publisher("h:1").publish("t", b"v")
    with pytest.raises(ConfigError):
        Publisher("h:x")
