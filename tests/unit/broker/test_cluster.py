"""The cluster view and topic changes, on the in-memory metadata store."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable

import pytest

from broker.cluster import Cluster
from broker.config import BrokerConfig
from broker.core.topic_config import TopicConfig
from broker.core.topology import BrokerInfo
from broker.errors import (
    InvalidPartitions,
    InvalidTopicConfig,
    InvalidTopicName,
    RequestTimedOut,
    TopicExists,
    UnknownTopicOrPartition,
)
from client.ids import BookieId, BrokerId
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from tests.fakes.brokers import until
from tests.fakes.clock import FakeClock, rng
from tests.fakes.virtual_time import run

BOOKIES = 3


async def settle(done: Callable[[], bool]) -> None:
    """Let the loop run until something is true."""
    for _ in range(2000):
        if done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


def broker_info(broker_id: int) -> BrokerInfo:
    return BrokerInfo(
        id=BrokerId(broker_id), incarnation="i", host="h", port=9092, advertised=False
    )


class World:
    """A metadata tree and two brokers' views of it."""

    def __init__(self) -> None:
        self.tree = MemoryCluster()
        self.stores: list[MemoryStore] = []
        self.views: list[Cluster] = []

    async def start(self) -> None:
        admin = self.tree.session()
        for number in range(BOOKIES):
            path = paths.cookie(BookieId(f"b{number}"))
            await admin.create(path, make_parents=True)
        for seed in (1, 2):
            store = self.tree.session()
            view = Cluster(store, BrokerConfig(), clock=FakeClock(), rng=rng(seed))
            await view.start()
            self.stores.append(store)
            self.views.append(view)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.start()
    yield made
    for view in made.views:
        await view.close()


async def test_a_broker_lists_itself_before_it_is_registered_and_as_registered(
    world: World,
) -> None:
    first, second = world.views
    assert first.listed_brokers() == []
    first.introduce(broker_info(1))
    assert first.listed_brokers() == [broker_info(1)]
    assert second.listed_brokers() == []
    shown = dataclasses.replace(broker_info(1), unloaded=True)
    await world.stores[0].create(paths.broker(BrokerId(1)), shown.encode())
    await settle(lambda: bool(first.brokers))
    assert first.listed_brokers() == [shown]


async def test_views_share_one_cluster_id(world: World) -> None:
    first, second = world.views
    assert first.cluster_id == second.cluster_id
    assert len(first.cluster_id) == 22


async def test_brokers_come_and_go(world: World) -> None:
    first, second = world.views
    notices = []
    second.add_listener(lambda: notices.append(1))
    for number in (2, 1):
        path, info = paths.broker(BrokerId(number)), broker_info(number)
        await world.stores[0].create(path, info.encode(), ephemeral=True)
    await settle(lambda: len(second.brokers) == 2)
    assert list(second.brokers) == [1, 2]
    assert second.brokers[BrokerId(2)] == broker_info(2)
    assert second.controller_id() == 1
    await settle(lambda: len(first.brokers) == 2)
    await world.stores[0].close()
    await settle(lambda: not second.brokers)
    await settle(lambda: bool(notices))


def test_a_broker_that_is_gone_is_listed_a_session_timeout_longer() -> None:
    async def scenario() -> None:
        world = World()
        await world.start()
        first, second = world.views
        timeout_s = BrokerConfig().session_timeout_ms / 1000
        for number in (1, 2):
            path = paths.broker(BrokerId(number))
            await world.stores[0].create(path, broker_info(number).encode())
        await until(lambda: len(second.brokers) == 2)
        await world.stores[0].delete(paths.broker(BrokerId(1)))
        await until(lambda: list(second.brokers) == [2])
        assert second.listed_brokers() == [broker_info(1), broker_info(2)]
        await asyncio.sleep(timeout_s / 2)
        moved = dataclasses.replace(broker_info(1), port=1)
        await world.stores[0].create(paths.broker(BrokerId(1)), moved.encode())
        await until(lambda: len(second.brokers) == 2)
        assert second.listed_brokers() == [moved, broker_info(2)]
        await world.stores[0].delete(paths.broker(BrokerId(1)))
        await until(lambda: list(second.brokers) == [2])
        await asyncio.sleep(timeout_s - 0.5)
        assert second.listed_brokers() == [moved, broker_info(2)]
        await asyncio.sleep(0.5)
        assert second.listed_brokers() == [broker_info(2)]
        for view in (first, second):
            await view.close()

    run(scenario())


async def test_a_changed_registration_is_seen(world: World) -> None:
    _, second = world.views
    path = paths.broker(BrokerId(1))
    await world.stores[0].create(path, broker_info(1).encode(), ephemeral=True)
    await settle(lambda: len(second.brokers) == 1)
    moved = dataclasses.replace(broker_info(1), port=1)
    await world.stores[0].set(path, moved.encode())
    await settle(lambda: second.brokers[BrokerId(1)].port == 1)


async def test_an_unreadable_registration_is_left_out(world: World) -> None:
    _, second = world.views
    await world.stores[0].create(paths.broker(BrokerId(1)), b"garbage", ephemeral=True)
    await world.stores[0].create(paths.broker(BrokerId(2)), broker_info(2).encode())
    await settle(lambda: list(second.brokers) == [2])


async def test_a_created_topic_shows_at_once_here_and_soon_elsewhere(world: World) -> None:
    first, second = world.views
    topic = await first.create_topic("t", 4, config={"retention.ms": "5"})
    assert first.topics == {"t": topic}
    assert first.topic_by_id == {topic.topic_id: topic}
    assert topic.config.retention_ms == 5
    await settle(lambda: second.topics == {"t": topic})
    names = await world.stores[0].children(paths.topic_partitions(topic.id_text))
    assert names == ["0", "1", "2", "3"]


async def test_topics_are_spread_over_live_brokers(world: World) -> None:
    first, _ = world.views
    topic = await first.create_topic("t", 4)
    assert first.wanted_owner(topic, 0) is None
    for number in (1, 2):
        path, info = paths.broker(BrokerId(number)), broker_info(number)
        await world.stores[0].create(path, info.encode(), ephemeral=True)
    await settle(lambda: len(first.brokers) == 2)
    owners = [first.wanted_owner(topic, index) for index in range(4)]
    assert sorted(filter(None, owners)) == [1, 1, 2, 2]
    assert first.wanted_owner(topic, 9) is None


async def test_bad_topics_are_refused(world: World) -> None:
    first, second = world.views
    await first.create_topic("a.b")
    for name, error in (("a.b", TopicExists), ("a_b", InvalidTopicName), ("", InvalidTopicName)):
        with pytest.raises(error):
            await first.create_topic(name)
    assert list(first.topics) == ["a.b"]
    assert len(await world.stores[0].children(paths.PARTITIONS)) == 1
    # A view that lags behind is caught by the store.
    second.topics = {}
    with pytest.raises(TopicExists):
        await second.create_topic("a.b")


async def test_validation_creates_nothing(world: World) -> None:
    first, _ = world.views
    topic = await first.create_topic("t", validate_only=True)
    assert (topic.partition_count, topic.replication_factor) == (1, 3)
    assert not first.topics
    assert not await world.stores[0].children(paths.PARTITIONS)


async def test_deleting_leaves_a_tombstone(world: World) -> None:
    first, second = world.views
    topic = await first.create_topic("t")
    await settle(lambda: "t" in second.topics)
    await second.delete_topic("t")
    assert not second.topics
    await settle(lambda: not first.topics)
    assert await world.stores[0].children(paths.DELETED) == [topic.id_text]
    with pytest.raises(UnknownTopicOrPartition):
        await first.delete_topic("t")
    again = await first.create_topic("t")
    assert again.topic_id != topic.topic_id
    assert first.topics == {"t": again}


async def test_a_recreated_topic_is_seen_as_the_new_one(world: World) -> None:
    first, second = world.views
    await first.create_topic("t")
    await first.delete_topic("t")
    again = await first.create_topic("t", 2)
    await settle(lambda: second.topics == {"t": again})


async def test_growing(world: World) -> None:
    first, second = world.views
    topic = await first.create_topic("t", 2)
    await settle(lambda: "t" in second.topics)
    dry = await first.grow_topic("t", 5, validate_only=True)
    assert dry.partition_count == 5
    assert first.topics["t"].partition_count == 2
    await first.grow_topic("t", 5)
    assert first.topics["t"].partition_count == 5
    await settle(lambda: second.topics["t"].partition_count == 5)
    names = await world.stores[0].children(paths.topic_partitions(topic.id_text))
    assert len(names) == 5
    for count in (5, 4, 0, -1, 10_001):
        with pytest.raises(InvalidPartitions):
            await first.grow_topic("t", count)
    with pytest.raises(UnknownTopicOrPartition):
        await first.grow_topic("none", 5)


async def test_growing_after_a_broken_off_attempt(world: World) -> None:
    first, _ = world.views
    topic = await first.create_topic("t", 1)
    await world.stores[0].create(paths.partition(topic.id_text, 2))
    await first.grow_topic("t", 5)
    names = await world.stores[0].children(paths.topic_partitions(topic.id_text))
    assert names == ["0", "1", "2", "3", "4"]


async def test_settings_change(world: World) -> None:
    first, second = world.views
    await first.create_topic("t")
    await settle(lambda: "t" in second.topics)

    def shorter(config: TopicConfig) -> TopicConfig:
        return TopicConfig.parse({**config.overrides, "retention.ms": "7"})

    await first.configure_topic("t", shorter)
    assert first.topics["t"].config.retention_ms == 7
    await settle(lambda: second.topics["t"].config.retention_ms == 7)

    def too_many(config: TopicConfig) -> TopicConfig:
        return TopicConfig.parse({"min.insync.replicas": "4"})

    with pytest.raises(InvalidTopicConfig):
        await first.configure_topic("t", too_many)


@pytest.mark.parametrize("fault", list(Fault))
async def test_lost_answers_are_settled(world: World, fault: Fault) -> None:
    first, _ = world.views
    writes = ("create", "create_all", "set", "delete")
    hit: set[tuple[str, str]] = set()

    def once(operation: Operation) -> Fault | None:
        key = (operation.name, operation.path)
        if operation.name not in writes or key in hit:
            return None
        hit.add(key)
        return fault

    world.tree.on_request = once
    topic = await first.create_topic("t", 2)
    await first.grow_topic("t", 3)
    await first.configure_topic("t", lambda c: TopicConfig.parse({"retention.ms": "7"}))
    node = await world.stores[0].get(paths.topic("t"))
    assert first.topics["t"].encode() == node.data
    names = await world.stores[0].children(paths.topic_partitions(topic.id_text))
    assert names == ["0", "1", "2"]
    await first.delete_topic("t")
    assert not first.topics
    assert await world.stores[0].children(paths.DELETED) == [topic.id_text]


async def test_an_answer_that_never_comes_is_a_timeout(world: World) -> None:
    first, _ = world.views
    world.tree.on_request = lambda operation: (
        Fault.LOSE_REQUEST if operation.name == "create" else None
    )
    with pytest.raises(RequestTimedOut):
        await first.create_topic("t")


async def test_two_changes_at_once_both_hold(world: World) -> None:
    first, second = world.views
    await first.create_topic("t")

    def setting(key: str) -> Callable[[TopicConfig], TopicConfig]:
        return lambda config: TopicConfig.parse({**config.overrides, key: "99"})

    await asyncio.gather(
        first.configure_topic("t", setting("retention.ms")),
        second.configure_topic("t", setting("segment.ms")),
    )
    await settle(lambda: len(first.topics["t"].config.overrides) == 2)


async def test_the_view_survives_an_expired_session(world: World) -> None:
    first, second = world.views
    world.tree.expire(world.stores[1])
    await first.create_topic("t")
    await asyncio.sleep(0.2)
    await settle(lambda: "t" in second.topics)


async def test_leader_epochs_are_read_when_asked_for(world: World) -> None:
    first, _ = world.views
    topic = await first.create_topic("t", 2)
    epochs = first.leader_epochs
    assert epochs.get(topic, 0) == -1
    await epochs.load([topic])
    assert epochs.get(topic, 0) == -1
    path = paths.partition(topic.id_text, 0)
    await world.stores[0].set(
        path, b'{"version":1,"leader_epoch":4,"log_start_offset":0,"segments":[]}'
    )
    await settle(lambda: 0 in epochs._known[topic.topic_id].stale)
    await epochs.load([topic])
    assert (epochs.get(topic, 0), epochs.get(topic, 1), epochs.get(topic, 7)) == (4, -1, -1)
    await first.delete_topic("t")
    assert epochs.get(topic, 0) == -1


async def test_the_commit_point_of_each_change_is_in_its_place(world: World) -> None:
    """A broker that dies between two writes must leave a whole topic, or none."""
    first, _ = world.views
    writes: list[str] = []

    def note(operation: Operation) -> None:
        if operation.name in ("create", "create_all", "set", "delete"):
            writes.append(f"{operation.name} {operation.path}")

    world.tree.on_request = note
    topic = await first.create_topic("t", 2)
    directory = paths.topic_partitions(topic.id_text)
    assert writes == [
        f"create_all {directory}",
        f"create_all {directory}/0",
        "create /quire/topics/t",
    ]
    writes.clear()
    await first.grow_topic("t", 3)
    assert writes == [f"create_all {directory}/2", "set /quire/topics/t"]
    writes.clear()
    await first.delete_topic("t")
    assert writes == [f"create_all /quire/deleted/{topic.id_text}", "delete /quire/topics/t"]


async def test_a_pin_is_a_wish_that_every_view_shows_and_that_ends_with_its_removal(
    world: World,
) -> None:
    first, second = world.views
    admin = world.tree.session()
    for number in (1, 2):
        await admin.create(paths.broker(BrokerId(number)), broker_info(number).encode())
    await settle(lambda: len(first.brokers) == len(second.brokers) == 2)
    topic = await first.create_topic("t", 4)
    before = [first.wanted_owner(topic, index) for index in range(4)]
    other = BrokerId(1 if before[3] == 2 else 2)
    topic = await first.pin_partition("t", 3, other)
    assert first.wanted_owner(topic, 3) == other
    await settle(lambda: "t" in second.topics and second.topics["t"].pins == {3: other})
    assert second.wanted_owner(second.topics["t"], 3) == other
    assert [second.wanted_owner(second.topics["t"], index) for index in range(3)] == before[:3]
    topic = await second.pin_partition("t", 3, None)
    assert topic.pins == {}
    assert second.wanted_owner(topic, 3) == before[3]


async def test_a_pin_needs_a_partition(world: World) -> None:
    first, _ = world.views
    await first.create_topic("t", 2)
    with pytest.raises(UnknownTopicOrPartition):
        await first.pin_partition("t", 2, BrokerId(1))
    with pytest.raises(UnknownTopicOrPartition):
        await first.pin_partition("nothing", 0, BrokerId(1))


async def test_an_unloaded_broker_is_wanted_nowhere(world: World) -> None:
    first, _ = world.views
    admin = world.tree.session()
    for number in (1, 2):
        await admin.create(paths.broker(BrokerId(number)), broker_info(number).encode())
    await settle(lambda: len(first.brokers) == 2)
    topic = await first.create_topic("t", 6)
    assert {first.wanted_owner(topic, index) for index in range(6)} == {1, 2}
    unloaded = dataclasses.replace(broker_info(1), unloaded=True)
    await admin.set(paths.broker(BrokerId(1)), unloaded.encode())
    await settle(lambda: first.brokers[BrokerId(1)].unloaded)
    assert {first.wanted_owner(topic, index) for index in range(6)} == {2}
