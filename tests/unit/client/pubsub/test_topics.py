"""Topic administration over a fake aiokafka admin client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError

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


class FakeAdmin:
    """Stands in for AIOKafkaAdminClient; `answers` of metadata are used up, the last one stays."""

    metadata: list[list[dict[str, Any]]]
    create_result: tuple[str, int, str | None]
    config_entries: list[dict[str, Any]] | None
    start_error: Exception | None

    def __init__(self, **_: Any) -> None:
        self.created: list[Any] = []

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    async def close(self) -> None:
        pass

    async def create_topics(self, topics: list[Any]) -> Any:
        self.created += topics
        return SimpleNamespace(topic_errors=[self.create_result])

    async def delete_topics(self, names: list[str]) -> Any:
        known = {topic["topic"] for topic in self.metadata[0]}
        codes = [(name, 0 if name in known else 3) for name in names]
        return SimpleNamespace(topic_error_codes=codes)

    async def describe_topics(self) -> list[dict[str, Any]]:
        return self.metadata.pop(0) if len(self.metadata) > 1 else self.metadata[0]

    async def describe_configs(self, _: object) -> list[Any]:
        if self.config_entries is None:
            raise IncompatibleBrokerVersion
        answer = {"resources": [{"config_entries": self.config_entries}]}
        return [SimpleNamespace(to_object=lambda: answer)]


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
def admin(monkeypatch: pytest.MonkeyPatch) -> type[FakeAdmin]:
    FakeAdmin.metadata = [[]]
    FakeAdmin.create_result = ("t", 0, None)
    FakeAdmin.config_entries = None
    FakeAdmin.start_error = None
    monkeypatch.setattr(module, "AIOKafkaAdminClient", FakeAdmin)
    monkeypatch.setattr(module, "AIOKafkaConsumer", FakeConsumer)
    monkeypatch.setattr(module, "_POLL_S", 0.0)
    return FakeAdmin


async def test_create_returns_when_every_partition_has_a_leader(admin: type[FakeAdmin]) -> None:
    admin.metadata = [[], [_topic("t", [-1, 1])], [_topic("t", [1, 1])]]
    async with TopicAdmin("h:1") as topics:
        await topics.create("t", partition_count=2)
    assert len(admin.metadata) == 1


async def test_create_gives_up_waiting_for_leaders(
    admin: type[FakeAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READY_TIMEOUT_S", 0.01)
    admin.metadata = [[_topic("t", [-1])]]
    async with TopicAdmin("h:1") as topics:
        with pytest.raises(BrokerUnreachable, match="is created, but has no leaders yet"):
            await topics.create("t")


@pytest.mark.parametrize(
    ("code", "text", "error", "words"),
    [
        (36, None, TopicExists, "creating topic t failed"),
        (38, "only 3 bookies", InvalidTopic, "only 3 bookies"),
    ],
)
async def test_create_says_what_the_broker_refused(
    admin: type[FakeAdmin], code: int, text: str | None, error: type[PubSubError], words: str
) -> None:
    admin.create_result = ("t", code, text)
    async with TopicAdmin("h:1") as topics:
        with pytest.raises(error, match=words):
            await topics.create("t")


async def test_listings_are_sorted(admin: type[FakeAdmin]) -> None:
    admin.metadata = [[_topic("b", [1, 2]), _topic("__a", [1], internal=True)]]
    async with TopicAdmin("h:1") as topics:
        assert await topics.listings() == [
            TopicListing("__a", 1, True),
            TopicListing("b", 2, False),
        ]


async def test_describe_shows_offsets_where_there_is_a_leader(admin: type[FakeAdmin]) -> None:
    admin.metadata = [[_topic("t", [2, -1])]]
    async with TopicAdmin("h:1") as topics:
        topic = await topics.describe("t")
    assert topic.partitions == [
        PartitionDescription(0, 2, [1], 10, 25),
        PartitionDescription(1, None, [1], None, None),
    ]
    assert [partition.record_count for partition in topic.partitions] == [15, None]
    assert topic.configs == {}


@pytest.mark.parametrize("version", ["config_source", "is_default"])
async def test_describe_shows_settings_that_differ(admin: type[FakeAdmin], version: str) -> None:
    own, default = (1, 5) if version == "config_source" else (False, True)
    admin.metadata = [[_topic("t", [1])]]
    admin.config_entries = [
        {"config_names": "retention.ms", "config_value": "5", version: own},
        {"config_names": "segment.ms", "config_value": "7", version: default},
    ]
    async with TopicAdmin("h:1") as topics:
        assert (await topics.describe("t")).configs == {"retention.ms": "5"}


async def test_describe_and_delete_of_an_absent_topic(admin: type[FakeAdmin]) -> None:
    admin.metadata = [[_topic("t", [1])]]
    async with TopicAdmin("h:1") as topics:
        with pytest.raises(TopicNotFound, match="there is no topic u"):
            await topics.describe("u")
        with pytest.raises(TopicNotFound, match="deleting topic u failed"):
            await topics.delete("u")
        await topics.delete("t")


async def test_says_that_nobody_is_there(
    admin: type[FakeAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def why(_: str) -> str:
        return "nothing listens at h:1"

    monkeypatch.setattr(module, "why_unreachable", why)
    admin.start_error = KafkaConnectionError("x")
    with pytest.raises(BrokerUnreachable, match="nothing listens"):
        await TopicAdmin("h:1").start()
    with pytest.raises(PubSubError, match="not started"):
        await TopicAdmin("h:1").listings()
