"""What of a metadata answer is kept, and what is made anew when something changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

import broker.front.topic_metadata_cache
from broker.cluster.core.topology import TopicInfo
from broker.front.topic_metadata_cache import TopicMetadataCache
from client.ids import BrokerId, LeaderEpoch
from client.wire.kafka.apis import ApiKey, response_type
from client.wire.kafka.codec import encode_body
from client.wire.kafka.decoder import decode
from tests.fakes.topics import topic_info

TOPIC = replace(topic_info(3), topic_id=UUID(int=5), replication_factor=2)
"""With three brokers the plan is that each leads the partition of its number."""
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class World:
    """A cluster's view and its changes of leaders, which a test changes; counts what is encoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brokers = dict.fromkeys((ONE, TWO, THREE))
        self.owners = [ONE, TWO, THREE]
        self.epochs = [4, 5, 6]
        self.doubts: set[BrokerId] = set()
        self.unopened: set[int] = set()
        self.topic_by_id = {TOPIC.topic_id: TOPIC}
        self.listeners: list[Callable[[], None]] = []
        self.leader_epochs = self
        self.answers = TopicMetadataCache(self, self)
        self.encoded: list[tuple[str, ...]] = []
        encode_part = broker.front.topic_metadata_cache.encode_part

        def counting(key: int, version: int, path: tuple[str, ...], fields: Any) -> bytes:
            self.encoded.append(path)
            return encode_part(key, version, path, fields)

        monkeypatch.setattr(broker.front.topic_metadata_cache, "encode_part", counting)

    def add_listener(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def preferred_leaders(self, topic: TopicInfo) -> tuple[BrokerId, ...]:
        return tuple(self.owners)

    def of(self, topic: TopicInfo) -> tuple[LeaderEpoch, ...]:
        return tuple(map(LeaderEpoch, self.epochs))

    def unled(self, topic: TopicInfo) -> frozenset[int]:
        return frozenset(self.unopened)

    def suspected(self, topic: TopicInfo) -> frozenset[BrokerId]:
        return frozenset(self.doubts)

    def rows(self, topic: TopicInfo = TOPIC, version: int = 12) -> list[tuple[Any, ...]]:
        """Return (error, leader, epoch, replicas) of each partition, and forget the count."""
        self.encoded.clear()
        body = encode_body(
            ApiKey.METADATA,
            version,
            {
                "brokers": [],
                "cluster_id": "c",
                "controller_id": 1,
                "topics": [self.answers.get(topic, version)],
            },
        )
        (found,) = decode(response_type(ApiKey.METADATA, version), memoryview(body)).topics
        assert [row.partition_index for row in found.partitions] == list(
            range(topic.partition_count)
        )
        return [
            (
                row.error_code.value,
                row.leader_id,
                getattr(row, "leader_epoch", 0),
                row.replica_nodes,
            )
            for row in found.partitions
        ]

    @property
    def partitions_encoded(self) -> int:
        return self.encoded.count(("topics", "partitions"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_it_is_made_once(world: World) -> None:
    assert world.rows() == [(0, 1, 4, (1, 2)), (0, 2, 5, (2, 3)), (0, 3, 6, (3, 1))]
    assert world.partitions_encoded == 3
    before = world.answers.get(TOPIC, 12)
    assert world.rows() == [(0, 1, 4, (1, 2)), (0, 2, 5, (2, 3)), (0, 3, 6, (3, 1))]
    assert not world.encoded
    assert world.answers.get(TOPIC, 12) is before


def test_a_partition_whose_epoch_grew_is_made_anew_alone(world: World) -> None:
    world.rows()
    world.epochs[1] = 9
    assert world.rows()[1] == (0, 2, 9, (2, 3))
    assert world.partitions_encoded == 1


def test_nobody_is_named_before_the_partition_was_opened(world: World) -> None:
    world.epochs[1], world.unopened = -1, {1}
    assert world.rows() == [(0, 1, 4, (1, 2)), (5, -1, -1, (2, 3)), (0, 3, 6, (3, 1))]
    world.unopened = set()
    assert world.rows()[1] == (0, 2, -1, (2, 3)), "nobody knows: the plan is all there is"
    assert world.partitions_encoded == 1
    world.epochs[1] = 0
    assert world.rows()[1] == (0, 2, 0, (2, 3))


def test_whatever_it_says_it_says_as_it_is_now(world: World) -> None:
    world.rows()
    world.owners[0] = THREE
    assert world.rows()[0] == (0, 3, 4, (1, 3)), "the list stays, with the leader in it"
    world.doubts.add(TWO)
    assert world.rows()[1] == (5, -1, 5, (2, 3))
    world.doubts.clear()
    assert world.rows()[1] == (0, 2, 5, (2, 3))
    world.owners = [ONE, TWO, ONE]
    del world.brokers[THREE]
    assert world.rows() == [(0, 1, 4, (1, 2)), (0, 2, 5, (2, 1)), (0, 1, 6, (1, 2))]
    world.owners, world.brokers = [], {}
    assert world.rows() == [(5, -1, 4, ()), (5, -1, 5, ()), (5, -1, 6, ())]


def test_a_topic_that_changed_is_made_anew(world: World) -> None:
    world.rows()
    assert world.rows(replace(TOPIC, replication_factor=1))[0] == (0, 1, 4, (1,))
    world.owners.append(ONE)
    world.epochs.append(0)
    assert world.rows(replace(TOPIC, partition_count=4))[3] == (0, 1, 0, (3, 1))


def test_each_version_has_its_own_and_few_are_kept(world: World) -> None:
    for version in range(13):
        assert world.rows(version=version)[0][1] == 1
    world.rows(version=12)
    assert not world.encoded
    world.rows(version=0)
    assert world.partitions_encoded == 3


def test_topics_that_are_gone_are_forgotten(world: World) -> None:
    world.rows()
    world.topic_by_id.clear()
    for listener in world.listeners:
        listener()
    assert not world.answers._kept
