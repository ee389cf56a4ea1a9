"""The transactional publisher over brokers in memory: both generations, errors, lost answers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as Code

from client.errors import ConfigError
from client.pubsub import coordinators
from client.pubsub import transactional_publisher as module
from client.pubsub.errors import (
    ProducerFenced,
    PubSubError,
    TopicNotFound,
    TransactionAborted,
    TransactionError,
    TransactionInDoubt,
    TransactionRefused,
)
from client.pubsub.kafka_requests import Answer, KafkaRequest
from client.pubsub.subscriber import Positions
from client.pubsub.transactional_publisher import TransactionalPublisher, TransactionSettings
from client.wire.kafka.apis import ApiKey
from tests.fakes.transactional_kafka import TransactionalKafka

EVERY_VERSION = dict.fromkeys(map(int, ApiKey), (0, 99))


class FakeClient:
    """Stands in for AIOKafkaClient, one broker behind it."""

    kafka: TransactionalKafka
    lose: Callable[[], str] = staticmethod(lambda: "")
    """Asked for each request: "before" or "after" it is handled, the connection breaks."""

    def __init__(self, **_settings: Any) -> None:
        self.cluster = SimpleNamespace(
            partitions_for_topic=lambda topic: set(range(self.kafka.topics.get(topic, 0))),
            leader_for_partition=lambda _at: 1,
        )

    async def bootstrap(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def coordinator_lookup(self, _kind: object, _key: str) -> int:
        return 1

    def force_metadata_update(self) -> None:
        return None

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        raise KafkaConnectionError(topic)

    async def send(self, _node: int, request: KafkaRequest, **_group: object) -> Answer:
        prepared = request.prepare(EVERY_VERSION)
        lost = self.lose()
        await asyncio.sleep(0)
        if lost == "before":
            raise KafkaConnectionError("lost before")
        api = ApiKey(prepared.API_KEY)
        answer = self.kafka.handle(api, prepared.API_VERSION, request._fields)
        if lost == "after":
            raise KafkaConnectionError("lost after")
        return Answer(prepared.API_VERSION, answer)


@pytest.fixture(params=[False, True], ids=["first", "second"])
def kafka(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TransactionalKafka:
    made = TransactionalKafka({"a": 2, "b": 1}, second_generation=request.param)
    patch(monkeypatch, made)
    return made


def patch(monkeypatch: pytest.MonkeyPatch, kafka: TransactionalKafka) -> None:
    monkeypatch.setattr(FakeClient, "kafka", kafka, raising=False)
    monkeypatch.setattr(FakeClient, "lose", staticmethod(lambda: ""))
    monkeypatch.setattr(module, "AIOKafkaClient", FakeClient)
    monkeypatch.setattr(coordinators, "PAUSE_S", 0.0)
    monkeypatch.setattr("client.pubsub.transaction_sender.PAUSE_S", 0.0)
    monkeypatch.setattr("client.pubsub.transaction_sender._PAUSE_S_MAX", 0.0)
    monkeypatch.setattr(coordinators, "MARKERS_PAUSE_S", 0.0)


def made(**settings_: Any) -> TransactionalPublisher:
    return TransactionalPublisher("id", "127.0.0.1:1", TransactionSettings(**settings_))


async def started() -> TransactionalPublisher:
    publisher = made()
    await publisher.start()
    return publisher


async def test_a_transaction_is_visible_once_it_commits(kafka: TransactionalKafka) -> None:
    async with made() as publisher:
        for round_ in range(3):
            async with publisher.transaction():
                for index in range(60):
                    await publisher.enqueue("a", b"%d" % index, key=b"%d" % index)
                await publisher.enqueue("b", b"last")
                assert len(kafka.committed()) == 61 * round_
            assert len(kafka.committed()) == 61 * (round_ + 1)
    assert len(kafka.committed("b")) == 3
    assert not kafka.open()


async def test_an_exception_in_the_block_aborts(kafka: TransactionalKafka) -> None:
    async with made() as publisher:
        with pytest.raises(KeyError):
            async with publisher.transaction():
                await publisher.enqueue("b", b"x")
                await asyncio.sleep(0.01)
                raise KeyError
        assert not kafka.committed() and not kafka.open()
        async with publisher.transaction():
            await publisher.enqueue("b", b"y")
    assert kafka.committed() == [b"y"]


async def test_an_empty_transaction_asks_nobody(kafka: TransactionalKafka) -> None:
    async with made() as publisher:
        before = kafka.ids["id"].epoch
        async with publisher.transaction():
            pass
        assert (kafka.ids["id"].state, kafka.ids["id"].epoch) == ("Empty", before)


async def test_a_refused_record_spoils_its_transaction_and_not_the_next(
    kafka: TransactionalKafka,
) -> None:
    async with made() as publisher:
        kafka.codes = [(ApiKey.PRODUCE, Code.none), (ApiKey.PRODUCE, Code.message_too_large)]
        with pytest.raises(TransactionAborted, match="MESSAGE_TOO_LARGE"):
            async with publisher.transaction():
                await publisher.enqueue("b", b"good")
                await asyncio.sleep(0.01)
                await publisher.enqueue("b", b"large")
        async with publisher.transaction():
            await publisher.enqueue("b", b"next")
    assert kafka.committed() == [b"next"]
    assert not kafka.open()


async def test_offsets_move_with_the_commit_only(kafka: TransactionalKafka) -> None:
    async with made() as publisher:
        await publisher.begin()
        await publisher.send_offsets(Positions("g", {("b", 0): 5}))
        await publisher.abort()
        assert not kafka.offsets
        async with publisher.transaction():
            await publisher.send_offsets(Positions("g", {("b", 0): 5, ("a", 1): 6}))
    assert kafka.offsets == {("g", ("b", 0)): (5, ""), ("g", ("a", 1)): (6, "")}


async def test_a_member_that_lost_its_partitions_cannot_commit(kafka: TransactionalKafka) -> None:
    kafka.generations["g"] = 4
    async with made() as publisher:
        with pytest.raises(TransactionAborted, match="ILLEGAL_GENERATION"):
            async with publisher.transaction():
                await publisher.enqueue("b", b"x")
                await publisher.send_offsets(Positions("g", {("b", 0): 5}, "me", 3))
        async with publisher.transaction():
            await publisher.enqueue("b", b"y")
            await publisher.send_offsets(Positions("g", {("b", 0): 7}, "me", 4))
    assert kafka.committed() == [b"y"]
    assert kafka.offsets == {("g", ("b", 0)): (7, "")}


async def test_a_second_publisher_fences_the_first(kafka: TransactionalKafka) -> None:
    async with made() as first:
        await first.begin()
        await first.enqueue("b", b"x")
        await asyncio.sleep(0.01)
        async with made() as second:
            assert not kafka.open()
            async with second.transaction():
                await second.enqueue("b", b"y")
            with pytest.raises(ProducerFenced, match="took over"):
                await first.commit()
            with pytest.raises(PubSubError):
                await first.begin()
    assert kafka.committed() == [b"y"]


async def test_a_transaction_that_timed_out_is_aborted(kafka: TransactionalKafka) -> None:
    async with made() as publisher:
        await publisher.begin()
        await publisher.enqueue("b", b"x")
        await asyncio.sleep(0.01)
        kafka.expire("id")
        with pytest.raises(TransactionError):
            await publisher.commit()
    assert not kafka.committed() and not kafka.open()


async def test_a_commit_in_doubt_is_asked_for_again(
    kafka: TransactionalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made(retry_timeout_ms=0) as publisher:
        await publisher.begin()
        await publisher.enqueue("b", b"x")
        await asyncio.sleep(0.01)
        monkeypatch.setattr(FakeClient, "lose", staticmethod(lambda: "after"))
        with pytest.raises(TransactionInDoubt):
            await publisher.commit()
        with pytest.raises(PubSubError, match="waits for a transaction to end"):
            await publisher.abort()
        monkeypatch.setattr(FakeClient, "lose", staticmethod(lambda: ""))
        await publisher.commit()
        async with publisher.transaction():
            await publisher.enqueue("b", b"y")
    assert kafka.committed() == [b"x", b"y"]


async def test_refusals_of_the_id_end_the_publisher(kafka: TransactionalKafka) -> None:
    kafka.codes = [(ApiKey.INIT_PRODUCER_ID, Code.transactional_id_authorization_failed)]
    with pytest.raises(TransactionRefused, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await made().start()


async def test_a_commit_that_the_coordinator_turns_down_is_aborted(
    kafka: TransactionalKafka,
) -> None:
    async with made() as publisher:
        kafka.codes = [(ApiKey.END_TXN, Code.transaction_abortable)]
        with pytest.raises(TransactionAborted, match="TRANSACTION_ABORTABLE"):
            async with publisher.transaction():
                await publisher.enqueue("b", b"x")
        async with publisher.transaction():
            await publisher.enqueue("b", b"y")
    assert kafka.committed() == [b"y"]


async def test_an_abort_without_an_answer_is_done_by_the_next_begin(
    kafka: TransactionalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made(retry_timeout_ms=0) as publisher:
        with pytest.raises(KeyError):
            async with publisher.transaction():
                await publisher.enqueue("b", b"x")
                await asyncio.sleep(0.01)
                monkeypatch.setattr(FakeClient, "lose", staticmethod(lambda: "before"))
                raise KeyError
        assert kafka.open() == [b"x"]
        monkeypatch.setattr(FakeClient, "lose", staticmethod(lambda: ""))
        async with publisher.transaction():
            assert not kafka.open()
            await publisher.enqueue("b", b"y")
    assert kafka.committed() == [b"y"]


async def test_codes_that_pass_are_waited_out(kafka: TransactionalKafka) -> None:
    kafka.codes = [
        (ApiKey.INIT_PRODUCER_ID, Code.coordinator_load_in_progress),
        (ApiKey.ADD_PARTITIONS_TO_TXN, Code.concurrent_transactions),
        (ApiKey.PRODUCE, Code.not_leader_or_follower),
        (ApiKey.PRODUCE, Code.concurrent_transactions),
        (ApiKey.END_TXN, Code.not_coordinator),
    ]
    async with made() as publisher, publisher.transaction():
        await publisher.enqueue("b", b"x")
    assert kafka.committed() == [b"x"]


async def test_a_source_that_is_faster_than_the_brokers_waits(
    kafka: TransactionalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made(unsent_bytes_max=1000) as publisher:
        await publisher.begin()
        monkeypatch.setattr(FakeClient, "lose", staticmethod(lambda: "before"))
        sent = 0

        async def source() -> None:
            nonlocal sent
            for _ in range(100):
                await publisher.enqueue("b", bytes(100))
                sent += 1

        task = asyncio.create_task(source())
        await asyncio.sleep(0.05)
        assert 5 < sent < 15
        monkeypatch.setattr(FakeClient, "lose", staticmethod(lambda: ""))
        await task
        await publisher.commit()
    assert len(kafka.committed()) == 100


async def test_mistakes_are_named(kafka: TransactionalKafka) -> None:
    with pytest.raises(ConfigError, match="may not be empty"):
        TransactionalPublisher("")
    with pytest.raises(ConfigError, match="compression"):
        made(compression="rot13")
    with pytest.raises(PubSubError, match="not started"):
        await made().commit()
    async with made() as publisher:
        with pytest.raises(PubSubError, match="is between transactions"):
            await publisher.enqueue("b", b"x")
        await publisher.begin()
        with pytest.raises(TopicNotFound, match="there is no topic c"):
            await publisher.enqueue("c", b"x")
        with pytest.raises(TopicNotFound, match="no partition 7"):
            await publisher.enqueue("b", b"x", partition=7)


PASSING = st.sampled_from(
    [
        (ApiKey.ADD_PARTITIONS_TO_TXN, Code.concurrent_transactions),
        (ApiKey.PRODUCE, Code.not_enough_replicas),
        (ApiKey.PRODUCE, Code.message_too_large),
        (ApiKey.PRODUCE, Code.out_of_order_sequence_number),
        (ApiKey.TXN_OFFSET_COMMIT, Code.not_coordinator),
        (ApiKey.TXN_OFFSET_COMMIT, Code.illegal_generation),
        (ApiKey.END_TXN, Code.coordinator_load_in_progress),
    ]
)


class Application:
    """Runs transactions one after the other, as a plan says, and keeps what has to be visible."""

    def __init__(self, kafka: TransactionalKafka, rng: random.Random) -> None:
        self._kafka = kafka
        self._rng = rng
        self.values: list[bytes] = []
        self.position = -1
        self._is_expired = False
        """Whether the coordinator's time-out took the epoch away. If the transaction failed before
        that showed, the next one tells."""

    async def run(self, plan: list[tuple[int, str]]) -> None:
        publisher = await started()
        for number, (count, end) in enumerate(plan):
            try:
                await self._one(publisher, number, count, end)
            except ProducerFenced:
                assert self._is_expired
                end = "restarted"
            if end == "restarted":
                former, publisher = publisher, await started()
                self._is_expired = False
                with contextlib.suppress(PubSubError):
                    await former.close()
        await publisher.close()

    async def _one(
        self, publisher: TransactionalPublisher, number: int, count: int, end: str
    ) -> None:
        values = [b"%d-%d" % (number, index) for index in range(count)]
        with contextlib.suppress(KeyError, TransactionAborted):
            async with publisher.transaction():
                for value in values:
                    await publisher.enqueue(self._rng.choice("ab"), value)
                    if self._rng.random() < 0.5:
                        await asyncio.sleep(0)
                if end == "expired":
                    self._kafka.expire("id")
                    self._is_expired = True
                await publisher.send_offsets(Positions("g", {("b", 0): number}))
                if end == "aborted":
                    raise KeyError
            self.values += values
            self.position = number


ENDS = st.sampled_from(["committed", "aborted", "expired", "restarted"])


@given(
    second=st.booleans(),
    codes=st.lists(PASSING, max_size=6),
    seed=st.integers(0, 1 << 16),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    plan=st.lists(st.tuples(st.integers(0, 8), ENDS), max_size=6),
)
@settings(max_examples=150, deadline=None)
def test_all_or_nothing_whatever_is_lost(
    second: bool,
    codes: list[tuple[ApiKey, Code]],
    seed: int,
    loss: float,
    plan: list[tuple[int, str]],
) -> None:
    """What committed is visible once, with its offsets; nothing else ever is."""
    rng = random.Random(seed)
    kafka = TransactionalKafka({"a": 2, "b": 1}, second_generation=second)
    kafka.codes = list(codes)
    application = Application(kafka, rng)

    def lose() -> str:
        return rng.choice(["before", "after"]) if rng.random() < loss else ""

    with pytest.MonkeyPatch.context() as monkeypatch:
        patch(monkeypatch, kafka)
        monkeypatch.setattr(FakeClient, "lose", staticmethod(lose))
        asyncio.run(application.run(plan))
    assert sorted(kafka.committed(), key=str) == sorted(application.values, key=str)
    assert not kafka.open()
    assert kafka.offsets.get(("g", ("b", 0)), (-1, ""))[0] == application.position
