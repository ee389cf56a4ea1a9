"""Topic administration over a fake of aiokafka's client with two brokers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    NodeNotReadyError,
    RequestTimedOutError,
)
from aiokafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
)
from aiokafka.protocol.metadata import MetadataRequest

from client.errors import Outcome
from client.pubsub import brokers
from client.pubsub import topics as module
from client.pubsub.errors import (
    BrokerUnreachable,
    InvalidTopic,
    PubSubError,
    TopicExists,
    TopicNotFound,
)
from client.pubsub.topics import PartitionDescription, TopicAdmin, TopicListing


def _topic(name: str, leaders: list[int], *, internal: bool = False) -> dict[str, Any]:
    return {
        "topic": name,
        "error_code": 0,
        "is_internal": internal,
        "partitions": [
            {"partition": index, "leader": leader, "replicas": [1], "isr": [1], "error_code": 0}
            for index, leader in enumerate(leaders)
        ],
    }


class FakeClient:
    """Stands in for AIOKafkaClient. A broker's last answer to Metadata stays, earlier ones pass."""

    answers: dict[int, list[list[dict[str, Any]]]]
    dead: set[int]
    failure: Exception | None
    create_result: tuple[str, int, str | None]
    config_entries: list[dict[str, Any]] | None
    start_error: Exception | None
    asked: list[tuple[int, str]]

    def __init__(self, **_: Any) -> None:
        brokers = [SimpleNamespace(nodeId=node) for node in self.answers]
        self.cluster = SimpleNamespace(
            brokers=lambda: brokers, update_metadata=lambda response: None
        )

    async def bootstrap(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    async def close(self) -> None:
        pass

    async def send(self, node: int, request: Any) -> Any:
        if node in self.dead:
            raise NodeNotReadyError
        if self.failure is not None:
            raise self.failure
        self.asked.append((node, type(request).__name__))
        if isinstance(request, MetadataRequest):
            return self._metadata(node, request)
        if isinstance(request, CreateTopicsRequest):
            return SimpleNamespace(topic_errors=[self.create_result])
        if isinstance(request, DeleteTopicsRequest):
            known = {topic["topic"] for topic in self.answers[node][0]}
            codes = [(name, 0 if name in known else 3) for name in request._topics]
            return SimpleNamespace(topic_error_codes=codes)
        assert isinstance(request, DescribeConfigsRequest)
        if self.config_entries is None:
            raise IncompatibleBrokerVersion
        answer = {"resources": [{"config_entries": self.config_entries}]}
        return SimpleNamespace(to_object=lambda: answer)

    def _metadata(self, node: int, request: MetadataRequest) -> Any:
        assert request._allow_auto_topic_creation is False
        answers, names = self.answers[node], request._topics
        topics = answers.pop(0) if names and len(answers) > 1 else answers[0]
        absent = [{"topic": name, "error_code": 3} for name in names or []]
        found = [t for t in topics if names is None or t["topic"] in names]
        return SimpleNamespace(to_object=lambda: {"topics": found or absent})


class FakeConsumer:
    """Answers offsets only."""

    def __init__(self, **_: Any) -> None:
        pass

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 10)

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 25)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    FakeClient.answers = {0: [[]], 1: [[]]}
    FakeClient.dead = set()
    FakeClient.failure = None
    FakeClient.create_result = ("t", 0, None)
    FakeClient.config_entries = None
    FakeClient.start_error = None
    FakeClient.asked = []
    monkeypatch.setattr(module, "AIOKafkaClient", FakeClient)
    monkeypatch.setattr(module, "AIOKafkaConsumer", FakeConsumer)
    monkeypatch.setattr(module, "_POLL_S", 0.0)

    async def why(_: str) -> str:
        return "nothing listens at h:1"

    monkeypatch.setattr(brokers, "why_unreachable", why)
    return FakeClient


async def test_create_returns_when_every_broker_shows_every_leader(fake: type[FakeClient]) -> None:
    fake.answers = {
        0: [[], [_topic("t", [-1, 1])], [_topic("t", [1, 1])]],
        1: [[], [], [], [_topic("t", [1, 1])]],
    }
    async with TopicAdmin("h:1") as topics:
        await topics.create("t", partition_count=2)
    assert [len(answers) for answers in fake.answers.values()] == [1, 1]


@pytest.mark.parametrize("action", [TopicAdmin.create, TopicAdmin.delete])
async def test_gives_up_waiting_for_all_brokers(
    fake: type[FakeClient],
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[TopicAdmin, str], Any],
) -> None:
    monkeypatch.setattr(module, "_READY_TIMEOUT_S", 0.01)
    fake.answers = {0: [[_topic("t", [-1])]], 1: [[]]}
    async with TopicAdmin("h:1") as topics:
        with pytest.raises(BrokerUnreachable, match=r"topic t is \w+, but"):
            await action(topics, "t")


async def test_delete_returns_when_no_broker_shows_it(fake: type[FakeClient]) -> None:
    there = [_topic("t", [1])]
    fake.answers = {0: [there, []], 1: [there, there, []]}
    async with TopicAdmin("h:1") as topics:
        await topics.delete("t")
    assert [len(answers) for answers in fake.answers.values()] == [1, 1]


async def test_a_dead_broker_is_passed_over(fake: type[FakeClient]) -> None:
    fake.answers = {0: [[]], 1: [[_topic("t", [1])]]}
    fake.dead = {0}
    async with TopicAdmin("h:1") as topics:
        await topics.create("t")
        assert [listing.name for listing in await topics.listings()] == ["t"]
        fake.dead = {0, 1}
        with pytest.raises(BrokerUnreachable, match="listing topics failed: nothing listens"):
            await topics.listings()


async def test_a_request_that_may_have_arrived_is_not_repeated(fake: type[FakeClient]) -> None:
    for failure in (KafkaConnectionError("connection lost"), RequestTimedOutError()):
        fake.failure = failure
        async with TopicAdmin("h:1") as topics:
            with pytest.raises(BrokerUnreachable) as caught:
                await topics.create("t")
        assert caught.value.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("code", "text", "error", "words"),
    [
        (36, None, TopicExists, "creating topic t failed"),
        (38, "only 3 bookies", InvalidTopic, "only 3 bookies"),
    ],
)
async def test_create_says_what_the_broker_refused(
    fake: type[FakeClient], code: int, text: str | None, error: type[PubSubError], words: str
) -> None:
    fake.create_result = ("t", code, text)
    async with TopicAdmin("h:1") as topics:
        with pytest.raises(error, match=words):
            await topics.create("t")


async def test_listings_are_sorted(fake: type[FakeClient]) -> None:
    fake.answers[0] = [[_topic("b", [1, 2]), _topic("__a", [1], internal=True)]]
    async with TopicAdmin("h:1") as topics:
        assert await topics.listings() == [
            TopicListing("__a", 1, True),
            TopicListing("b", 2, False),
        ]


async def test_describe_shows_offsets_where_there_is_a_leader(fake: type[FakeClient]) -> None:
    fake.answers[0] = [[_topic("t", [2, -1])]]
    async with TopicAdmin("h:1") as topics:
        topic = await topics.describe("t")
    assert topic.partitions == [
        PartitionDescription(0, 2, [1], 10, 25),
        PartitionDescription(1, None, [1], None, None),
    ]
    assert [partition.record_count for partition in topic.partitions] == [15, None]
    assert topic.configs == {}


@pytest.mark.parametrize("version", ["config_source", "is_default"])
async def test_describe_shows_settings_that_differ(fake: type[FakeClient], version: str) -> None:
    own, default = (1, 5) if version == "config_source" else (False, True)
    fake.answers[0] = [[_topic("t", [1])]]
    fake.config_entries = [
        {"config_names": "retention.ms", "config_value": "5", version: own},
        {"config_names": "segment.ms", "config_value": "7", version: default},
    ]
    async with TopicAdmin("h:1") as topics:
        assert (await topics.describe("t")).configs == {"retention.ms": "5"}


async def test_describe_and_delete_of_an_absent_topic() -> None:
    async with TopicAdmin("h:1") as topics:
        with pytest.raises(TopicNotFound, match="there is no topic u"):
            await topics.describe("u")
        with pytest.raises(TopicNotFound, match="deleting topic u failed"):
            await topics.delete("u")
        with pytest.raises(InvalidTopic):
            await topics.describe("a/b")


async def test_says_that_nobody_is_there(fake: type[FakeClient]) -> None:
    fake.start_error = KafkaConnectionError("x")
    with pytest.raises(BrokerUnreachable, match=r"^nothing listens at h:1$"):
        await TopicAdmin("h:1").start()
    with pytest.raises(PubSubError, match="not started"):
        await TopicAdmin("h:1").listings()
