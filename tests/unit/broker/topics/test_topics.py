"""Changes of topics and how brokers' views show them, on the in-memory metadata store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from broker.cluster.core.topic_config import TopicConfig
from broker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTopicConfig,
    InvalidTopicName,
    RequestTimedOut,
    TopicExists,
    UnknownTopicOrPartition,
)
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from client.metadata.store import Change, Changed
from tests.fakes.cluster_views import ClusterViews, broker_info, settle


@pytest.fixture
async def world() -> AsyncIterator[ClusterViews]:
    made = ClusterViews()
    await made.start()
    yield made
    await made.close()


async def test_a_created_topic_shows_at_once_here_and_soon_elsewhere(world: ClusterViews) -> None:
    first, second = world.views
    topic = await world.topics[0].create("t", 4, config={"retention.ms": "5"})
    assert first.topics == {"t": topic}
    assert first.topic_by_id == {topic.topic_id: topic}
    assert topic.config.retention_ms == 5
    await settle(lambda: second.topics == {"t": topic})
    names = await world.stores[0].children(paths.topic_partitions(topic.id_text))
    assert names == ["0", "1", "2", "3"]


async def test_bad_topics_are_refused(world: ClusterViews) -> None:
    first, second = world.views
    await world.topics[0].create("a.b")
    for name, error in (("a.b", TopicExists), ("a_b", InvalidTopicName), ("", InvalidTopicName)):
        with pytest.raises(error):
            await world.topics[0].create(name)
    assert list(first.topics) == ["a.b"]
    assert len(await world.stores[0].children(paths.PARTITIONS)) == 1
    # A view that lags behind is caught by the store.
    second.topics = {}
    with pytest.raises(TopicExists):
        await world.topics[1].create("a.b")


async def test_validation_creates_nothing(world: ClusterViews) -> None:
    first, _ = world.views
    topic = await world.topics[0].create("t", validate_only=True)
    assert (topic.partition_count, topic.replication_factor) == (1, 3)
    assert not first.topics
    assert not await world.stores[0].children(paths.PARTITIONS)


async def test_deleting_leaves_a_tombstone(world: ClusterViews) -> None:
    first, second = world.views
    topic = await world.topics[0].create("t")
    await settle(lambda: "t" in second.topics)
    await world.topics[1].delete("t")
    assert not second.topics
    await settle(lambda: not first.topics)
    assert await world.stores[0].children(paths.DELETED) == [topic.id_text]
    with pytest.raises(UnknownTopicOrPartition):
        await world.topics[0].delete("t")
    again = await world.topics[0].create("t")
    assert again.topic_id != topic.topic_id
    assert first.topics == {"t": again}


async def test_a_recreated_topic_is_seen_as_the_new_one(world: ClusterViews) -> None:
    _, second = world.views
    await world.topics[0].create("t")
    await world.topics[0].delete("t")
    again = await world.topics[0].create("t", 2)
    await settle(lambda: second.topics == {"t": again})


async def test_growing(world: ClusterViews) -> None:
    first, second = world.views
    topic = await world.topics[0].create("t", 2)
    await settle(lambda: "t" in second.topics)
    dry = await world.topics[0].grow("t", 5, validate_only=True)
    assert dry.partition_count == 5
    assert first.topics["t"].partition_count == 2
    await world.topics[0].grow("t", 5)
    assert first.topics["t"].partition_count == 5
    assert first.topics["t"].grown_from == (2,), "what was there keeps its leaders"
    await settle(lambda: second.topics["t"].partition_count == 5)
    names = await world.stores[0].children(paths.topic_partitions(topic.id_text))
    assert len(names) == 5
    for count in (5, 4, 0, -1, 10_001):
        with pytest.raises(InvalidPartitions):
            await world.topics[0].grow("t", count)
    with pytest.raises(UnknownTopicOrPartition):
        await world.topics[0].grow("none", 5)


async def test_growing_after_a_broken_off_attempt(world: ClusterViews) -> None:
    topic = await world.topics[0].create("t", 1)
    await world.stores[0].create(paths.partition(topic.id_text, 2))
    await world.topics[0].grow("t", 5)
    names = await world.stores[0].children(paths.topic_partitions(topic.id_text))
    assert names == ["0", "1", "2", "3", "4"]


async def test_settings_change(world: ClusterViews) -> None:
    first, second = world.views
    await world.topics[0].create("t")
    await settle(lambda: "t" in second.topics)

    def shorter(config: TopicConfig) -> TopicConfig:
        return TopicConfig.parse({**config.overrides, "retention.ms": "7"})

    await world.topics[0].configure("t", shorter)
    assert first.topics["t"].config.retention_ms == 7
    await settle(lambda: second.topics["t"].config.retention_ms == 7)

    def too_many(config: TopicConfig) -> TopicConfig:
        return TopicConfig.parse({"min.insync.replicas": "4"})

    with pytest.raises(InvalidTopicConfig):
        await world.topics[0].configure("t", too_many)


@pytest.mark.parametrize("fault", list(Fault))
async def test_lost_answers_are_settled(world: ClusterViews, fault: Fault) -> None:
    first, _ = world.views
    writes = ("create", "multi", "set", "delete")
    hit: set[tuple[str, str]] = set()

    def once(operation: Operation) -> Fault | None:
        key = (operation.name, operation.path)
        if operation.name not in writes or key in hit:
            return None
        hit.add(key)
        return fault

    world.tree.on_request = once
    topic = await world.topics[0].create("t", 2)
    await world.topics[0].grow("t", 3)
    await world.topics[0].configure("t", lambda c: TopicConfig.parse({"retention.ms": "7"}))
    node = await world.stores[0].get(paths.topic("t"))
    assert first.topics["t"].encode() == node.data
    names = await world.stores[0].children(paths.topic_partitions(topic.id_text))
    assert names == ["0", "1", "2"]
    await world.topics[0].delete("t")
    assert not first.topics
    assert await world.stores[0].children(paths.DELETED) == [topic.id_text]


async def test_an_answer_that_never_comes_is_a_timeout(world: ClusterViews) -> None:
    world.tree.on_request = lambda operation: (
        Fault.LOSE_REQUEST if operation.name == "multi" else None
    )
    with pytest.raises(RequestTimedOut):
        await world.topics[0].create("t")
    world.tree.on_request = lambda operation: None
    await world.topics[0].create("t")
    world.tree.on_request = lambda operation: (
        Fault.LOSE_REQUEST if operation.name == "multi" else None
    )
    with pytest.raises(RequestTimedOut):
        await world.topics[0].delete("t")
    assert list(world.views[0].topics) == ["t"]


async def test_two_changes_at_once_both_hold(world: ClusterViews) -> None:
    first, _ = world.views
    await world.topics[0].create("t")

    def setting(key: str) -> Callable[[TopicConfig], TopicConfig]:
        return lambda config: TopicConfig.parse({**config.overrides, key: "99"})

    await asyncio.gather(
        world.topics[0].configure("t", setting("retention.ms")),
        world.topics[1].configure("t", setting("segment.ms")),
    )
    await settle(lambda: len(first.topics["t"].config.overrides) == 2)


async def test_the_commit_point_of_each_change_is_in_its_place(world: ClusterViews) -> None:
    """A broker that dies between two writes must leave a whole topic, or none."""
    writes: list[list[str]] = []
    multi = world.stores[0].multi

    async def noted(changes: Sequence[Change]) -> list[Changed]:
        writes.append([f"{type(change).__name__} {change.path}" for change in changes])
        return await multi(changes)

    world.stores[0].multi = noted  # type: ignore[method-assign]
    topic = await world.topics[0].create("t", 2)
    directory = paths.topic_partitions(topic.id_text)
    assert writes == [
        [f"Create {directory}"],
        [f"Create {directory}/0", f"Create {directory}/1"],
        [f"SetData {directory}", "Create /quire/topics/t"],
    ]
    writes.clear()
    await world.topics[0].grow("t", 3)
    assert writes == [
        [f"Create {directory}/2"],
        [f"SetData {directory}", "SetData /quire/topics/t"],
    ]
    writes.clear()
    await world.topics[0].delete("t")
    tombstone = f"Create /quire/deleted/{topic.id_text}"
    assert writes == [[f"SetData {directory}", "Delete /quire/topics/t", tombstone]]


async def test_every_view_shows_a_replica_list_until_it_is_removed(
    world: ClusterViews,
) -> None:
    first, second = world.views
    admin = world.tree.session()
    for number in (1, 2):
        await admin.create(paths.broker(BrokerId(number)), broker_info(number).encode())
    await settle(lambda: len(first.brokers) == len(second.brokers) == 2)
    topic = await world.topics[0].create("t", 4)
    before = [first.preferred_leader(topic, index) for index in range(4)]
    other = BrokerId(1 if before[3] == 2 else 2)
    topic = await world.topics[0].assign("t", {3: (other,)})
    assert first.preferred_leader(topic, 3) == other
    await settle(lambda: "t" in second.topics and second.topics["t"].assignments == {3: (other,)})
    assert second.preferred_leader(second.topics["t"], 3) == other
    assert [second.preferred_leader(second.topics["t"], index) for index in range(3)] == before[:3]
    topic = await world.topics[1].assign("t", {3: ()})
    assert topic.assignments == {}
    assert second.preferred_leader(topic, 3) == before[3]


async def test_a_replica_list_needs_a_partition_and_brokers(world: ClusterViews) -> None:
    admin = world.tree.session()
    await admin.create(paths.broker(BrokerId(1)), broker_info(1).encode())
    await settle(lambda: bool(world.views[0].brokers))
    await world.topics[0].create("t", 2)
    with pytest.raises(UnknownTopicOrPartition):
        await world.topics[0].assign("t", {0: (BrokerId(1),), 2: (BrokerId(1),)})
    with pytest.raises(UnknownTopicOrPartition):
        await world.topics[0].assign("nothing", {0: (BrokerId(1),)})
    for wrong in ((BrokerId(7),), (BrokerId(1), BrokerId(1))):
        with pytest.raises(InvalidReplicaAssignment):
            await world.topics[0].assign("t", {0: wrong})
    assert world.views[0].topics["t"].assignments == {}


async def test_a_rolling_upgrade_loses_nothing_that_the_newer_release_wrote(
    world: ClusterViews, caplog: pytest.LogCaptureFixture
) -> None:
    """The newer release sets a setting and a field, the older one changes the rest."""
    older, path = world.topics[0], paths.topic("t")
    await world.stores[1].create(paths.broker(BrokerId(1)), broker_info(1).encode())
    view = world.views[0]
    await older.create("t", 2, config={"segment.ms": "5"})
    node = await world.stores[1].get(path)
    fields = json.loads(node.data)
    newer = {
        **fields,
        "tiers": ["hot", {"after_days": 0.5}],
        "configs": {**fields["configs"], "tier.ms": "1", "segment.bytes": "7"},
    }
    await world.stores[1].set(path, json.dumps(newer).encode(), node.version)
    await settle(lambda: bool(view.topics["t"].config.carried and view.brokers))
    assert "topic.settings_carried topic=t count=2" in caplog.text
    assert not world.stores[0].unreadable.all()
    config = view.topics["t"].config
    assert (config.segment_ms, config.segment_bytes) == (5, 14), "it works with what is known"

    await older.configure("t", lambda c: TopicConfig.parse({**c.overrides, "retention.ms": "9"}))
    await older.configure("t", lambda c: TopicConfig.parse({**c.overrides, "segment.ms": "6"}))
    await older.grow("t", 3)
    await older.assign("t", {0: (BrokerId(1),)})
    view.set_topic_defaults({"segment.jitter.ms": "3"})
    await older.configure("t", lambda c: TopicConfig.parse({**c.overrides, "segment.ms": "8"}))

    found = json.loads((await world.stores[1].get(path)).data)
    assert found["tiers"] == newer["tiers"]
    assert found["configs"] == {
        "tier.ms": "1", "segment.bytes": "7", "segment.ms": "8", "retention.ms": "9",
    }  # fmt: skip
    assert found["partition_count"] == 3
