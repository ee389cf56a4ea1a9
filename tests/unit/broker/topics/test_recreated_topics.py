"""A topic that is made anew under its old name: nothing that was meant for the old one hits it.

The metadata store counts the versions of its node from 0 again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from broker.cluster.cluster import Cluster
from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo
from broker.errors import (
    InvalidPartitions,
    RequestTimedOut,
    TopicExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from broker.topics.core.topic_rules import TopicShape
from broker.topics.topic_changes import TopicChanges
from broker.topics.topic_cleaner import ORPHAN_AGE_MS, TopicCleaner
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.memory import Fault, MemoryStore, Operation
from client.metadata.store import MetadataStore
from tests.fakes.clock import FakeClock, rng
from tests.fakes.cluster_views import ClusterViews

_SHAPE = TopicShape(3, 3, TopicConfig({}))


@pytest.fixture
async def world() -> AsyncIterator[ClusterViews]:
    made = ClusterViews()
    await made.start()
    yield made
    await made.close()


class Held:
    """A session that has lost its connection: it holds its writes until it is back."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_asked, self.is_back = asyncio.Event(), asyncio.Event()

    def go_on(self) -> None:
        """Let one write through, and hold the next."""
        self.is_asked.clear()
        self.is_back.set()

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self._store, name)
        return self._held(answer) if name in ("delete", "set", "multi") else answer

    def _held(self, answer: Any) -> Any:
        async def held(*given: Any) -> Any:
            self.is_asked.set()
            await self.is_back.wait()
            if not self.is_asked.is_set():
                self.is_back.clear()
            return await answer(*given)

        return held


def changes_of(store: object, seed: int = 7) -> TopicChanges:
    return TopicChanges(cast(MetadataStore, store), FakeClock(), rng(seed))


async def made_by(store: object, seed: int = 7) -> TopicInfo:
    return await changes_of(store, seed).create("t", _SHAPE, internal=False, assignments={})


async def made(world: ClusterViews) -> TopicInfo:
    return await made_by(world.stores[0])


async def stored(world: ClusterViews) -> TopicInfo:
    return TopicInfo.decode("t", (await world.stores[0].get(paths.topic("t"))).data)


async def made_anew(world: ClusterViews, old: TopicInfo) -> TopicInfo:
    await changes_of(world.stores[0]).delete(old)
    new = await made_by(world.stores[0], 8)
    assert (await world.stores[0].get(paths.topic("t"))).version == 0
    return new


class NoBrokers:
    brokers: dict[BrokerId, object] = {}  # noqa: RUF012
    topic_by_id: dict[object, object] = {}  # noqa: RUF012

    def add_listener(self, listener: object) -> None:
        return


def cleaner(world: ClusterViews, store: object, clock: FakeClock | None = None) -> TopicCleaner:
    return TopicCleaner(
        cast(MetadataStore, store),
        cast(Cluster, NoBrokers()),
        changes_of(store),
        cast(Any, None),
        BrokerId(2),
        clock or FakeClock(),
    )


async def test_the_cleaner_behind_a_server_that_lags_leaves_the_new_one_alone(
    world: ClusterViews,
) -> None:
    old = await made(world)
    # An earlier release's broker: the tombstone first, which wakes the other broker's cleaner.
    await world.stores[0].create(paths.deleted_topic(old.id_text), b"t")
    world.tree.freeze(world.stores[1])
    new = await made_anew(world, old)
    await cleaner(world, world.stores[1])._clean_topic(old.topic_id)
    assert (await stored(world)) == new
    left = await world.stores[0].children(paths.PARTITIONS)
    assert left == [new.id_text]


async def test_a_removal_that_was_held_over_a_reconnection_leaves_the_new_one_alone(
    world: ClusterViews,
) -> None:
    old = await made(world)
    held = Held(world.stores[1])
    late = asyncio.ensure_future(changes_of(held).remove_definition("t", old.topic_id))
    await held.is_asked.wait()
    new = await made_anew(world, old)
    held.is_back.set()
    await late
    assert await stored(world) == new


async def test_a_deletion_that_was_held_leaves_the_new_one_alone(world: ClusterViews) -> None:
    """A broker that was stopped just after it had the request."""
    old = await made(world)
    held = Held(world.stores[1])
    late = asyncio.ensure_future(changes_of(held).delete(old))
    await held.is_asked.wait()
    new = await made_anew(world, old)
    held.is_back.set()
    await late  # somebody has deleted it: that is what was asked for
    assert await stored(world) == new
    assert await world.stores[0].children(paths.DELETED) == [old.id_text]


@pytest.mark.parametrize("change", ["configure", "grow", "assign"])
async def test_a_change_that_was_held_does_not_give_the_new_one_the_old_ones_id(
    world: ClusterViews, change: str
) -> None:
    old = await made(world)
    held = Held(world.stores[1])
    two = changes_of(held)
    if change == "configure":
        settings = TopicConfig.parse({"retention.ms": "1"})
        coming = two.configure("t", lambda _: settings, dry_run=False)
    elif change == "grow":
        coming = two.grow("t", 5, 100, None, (), dry_run=False)
    else:
        coming = two.assign("t", {0: (BrokerId(1),)})
    late = asyncio.ensure_future(coming)
    await held.is_asked.wait()
    new = await made_anew(world, old)
    held.is_back.set()
    with pytest.raises(UnknownTopicOrPartition):
        await late
    assert await stored(world) == new


async def test_settings_asked_for_behind_a_server_that_lags_are_those_of_the_new_one(
    world: ClusterViews,
) -> None:
    old = await made(world)
    world.tree.freeze(world.stores[1])
    new = await made_anew(world, old)
    topic = await changes_of(world.stores[1]).configure(
        "t", lambda _: TopicConfig.parse({"retention.ms": "1000"}), dry_run=False
    )
    assert topic.topic_id == new.topic_id
    assert (await stored(world)) == topic


async def replaced_unseen(world: ClusterViews) -> tuple[TopicInfo, TopicInfo]:
    """Return the old topic, which the second view shows, and the new one."""
    await made(world)
    old = await world.views[1].look_for_topic("t")
    assert old is not None
    world.tree.freeze(world.stores[1])
    new = await made_anew(world, old)
    assert world.views[1].topics["t"] == old
    return old, new


async def test_a_deletion_by_name_deletes_what_has_it_now_whatever_the_view_shows(
    world: ClusterViews,
) -> None:
    old, new = await replaced_unseen(world)
    assert await world.topics[1].delete("t") == new
    assert not world.views[1].topics
    assert await world.stores[0].children(paths.TOPICS) == []
    found = await world.stores[0].children(paths.DELETED)
    assert found == sorted([old.id_text, new.id_text])
    with pytest.raises(UnknownTopicOrPartition):
        await world.topics[1].delete("t")


async def test_a_deletion_by_id_means_that_topic_only(world: ClusterViews) -> None:
    old, new = await replaced_unseen(world)
    with pytest.raises(UnknownTopicId, match=str(old.topic_id)):
        await world.topics[1].delete("t", old.topic_id)
    assert await stored(world) == new
    assert world.views[1].topics["t"] == new, "whoever asks next is told of the new one"
    await world.topics[1].delete("t", new.topic_id)
    with pytest.raises(UnknownTopicId):
        await world.topics[1].delete("t", new.topic_id)


def lost_once(world: ClusterViews, path: str, fault: Fault) -> list[Fault]:
    """Lose the second transaction about `path`, or its answer: the first one makes the node."""
    faults = [fault]

    def lose(operation: Operation) -> Fault | None:
        if operation.name != "multi" or operation.path != path:
            return None
        return faults.pop() if faults else None

    world.tree.on_request = lose
    return faults


@pytest.mark.parametrize("fault", list(Fault))
async def test_partitions_are_added_once_and_the_caller_hears_so(
    world: ClusterViews, fault: Fault
) -> None:
    """Whatever the server shows next, and whoever has changed the topic since."""
    topic = await made(world)
    faults = lost_once(world, paths.topic_partitions(topic.id_text), fault)
    world.tree.freeze(world.stores[1])
    two = changes_of(world.stores[1])
    assert (await two.grow("t", 5, 100, None, (), dry_run=False)).partition_count == 5
    assert not faults
    assert (await stored(world)).grown_from == (3,)
    with pytest.raises(InvalidPartitions):
        await two.grow("t", 5, 100, None, (), dry_run=False)


async def test_settings_are_changed_once_though_others_change_them_since(
    world: ClusterViews,
) -> None:
    topic = await made(world)
    two = changes_of(world.stores[1])
    faults = lost_once(world, paths.topic_partitions(topic.id_text), Fault.LOSE_REPLY)
    sync = world.stores[1].sync

    def longer(config: TopicConfig) -> TopicConfig:
        count = int(config.overrides.get("segment.ms", "100"))
        return TopicConfig.parse({**config.overrides, "segment.ms": str(count + 1)})

    async def others_first(path: str) -> None:
        if not faults:
            world.stores[1].sync = sync  # type: ignore[method-assign]
            await changes_of(world.stores[0]).configure("t", longer, dry_run=False)
        await sync(path)

    world.stores[1].sync = others_first  # type: ignore[method-assign]
    await two.configure("t", longer, dry_run=False)
    assert (await stored(world)).config.overrides == {"segment.ms": "102"}


async def test_a_creation_whose_answer_was_lost_is_told_from_somebody_elses(
    world: ClusterViews,
) -> None:
    count = 0

    def lose_third(operation: Operation) -> Fault | None:
        nonlocal count
        count += operation.name == "multi"
        return Fault.LOSE_REPLY if operation.name == "multi" and count == 3 else None

    world.tree.on_request = lose_third
    world.tree.freeze(world.stores[0])
    topic = await made(world)
    assert count == 3
    assert await stored(world) == topic
    with pytest.raises(TopicExists):
        await made_by(world.stores[1], 9)


async def test_a_deletion_whose_answer_was_lost_is_one_though_the_cleaner_was_faster(
    world: ClusterViews,
) -> None:
    topic = await made(world)
    directory = paths.topic_partitions(topic.id_text)
    faults = lost_once(world, directory, Fault.LOSE_REPLY)
    sync = world.stores[1].sync

    async def cleaned_first(path: str) -> None:
        if not faults and await world.stores[0].exists(directory):
            await cleaner(world, world.stores[0])._clean_topic(topic.topic_id)
        await sync(path)

    world.stores[1].sync = cleaned_first  # type: ignore[method-assign]
    await changes_of(world.stores[1]).delete(topic)
    assert await world.stores[0].exists(directory) is None
    assert await world.stores[0].children(paths.DELETED) == []


async def test_a_topic_that_somebody_else_has_deleted_is_not_deleted_once_more(
    world: ClusterViews,
) -> None:
    """Whoever asked hears so, whether another topic has the name by now or not."""
    topic = await made(world)
    await changes_of(world.stores[1]).delete(topic)
    with pytest.raises(UnknownTopicOrPartition, match="was deleted"):
        await changes_of(world.stores[0]).delete(topic)
    new = await made_by(world.stores[1], 8)
    with pytest.raises(UnknownTopicOrPartition, match="has the name now"):
        await changes_of(world.stores[0]).delete(topic)
    assert await stored(world) == new


async def test_topics_of_earlier_releases_are_changed_and_deleted(world: ClusterViews) -> None:
    """They have the directory, too, as it was made: nobody has ever set it."""
    topic = await made(world)
    directory = paths.topic_partitions(topic.id_text)
    store = world.stores[0]
    data = (await store.get(paths.topic("t"))).data
    await store.delete(paths.topic("t"))
    for index in range(3):
        await store.delete(f"{directory}/{index}")
    await store.delete(directory)
    for path in (directory, *(f"{directory}/{index}" for index in range(3))):
        await store.create(path)
    await store.create(paths.topic("t"), data)
    one = changes_of(store)
    await one.grow("t", 4, 100, None, (), dry_run=False)
    # And a broker of an earlier release changes it by its version alone.
    node = await store.get(paths.topic("t"))
    await store.set(paths.topic("t"), node.data, node.version)
    grown = await one.grow("t", 5, 100, None, (), dry_run=False)
    await one.delete(grown)
    assert await store.children(paths.TOPICS) == []


async def test_a_topic_whose_directory_somebody_removed_can_be_deleted(
    world: ClusterViews,
) -> None:
    topic = await made(world)
    store = world.stores[0]
    directory = paths.topic_partitions(topic.id_text)
    for path in (*(f"{directory}/{index}" for index in range(3)), directory):
        await store.delete(path)
    await changes_of(store).delete(topic)
    assert await store.children(paths.TOPICS) == []


class Sweep:
    """A sweep that finds every directory old, and takes each to be its own."""

    def __init__(self, world: ClusterViews) -> None:
        self.store = world.stores[0]
        self.clock = FakeClock()
        self.cleaner = cleaner(world, self.store, self.clock)
        self.cleaner._is_mine = lambda topic_id: True  # type: ignore[method-assign]

    async def run(self) -> None:
        (id_text,) = await self.store.children(paths.PARTITIONS)
        directory = await self.store.exists(paths.topic_partitions(id_text))
        assert directory is not None
        self.clock.ms = directory.ctime_ms + ORPHAN_AGE_MS
        await self.cleaner.sweep()


async def test_a_creation_that_was_held_until_its_nodes_were_swept_makes_no_topic(
    world: ClusterViews,
) -> None:
    """Its partitions were condemned: the topic could never be opened."""
    sweep = Sweep(world)
    held = Held(world.stores[1])
    late = asyncio.ensure_future(made_by(held))
    for _ in range(2):  # the directory, and the partitions
        await held.is_asked.wait()
        held.go_on()
    await held.is_asked.wait()
    await sweep.run()
    held.is_back.set()
    with pytest.raises(RequestTimedOut):
        await late
    assert await world.stores[0].children(paths.TOPICS) == []
    assert await world.stores[0].children(paths.PARTITIONS) == []


async def test_a_sweep_leaves_what_has_become_a_topic_since_it_looked(
    world: ClusterViews,
) -> None:
    sweep = Sweep(world)
    held = Held(world.stores[1])
    coming = asyncio.ensure_future(made_by(held))
    for _ in range(2):
        await held.is_asked.wait()
        held.go_on()
    await held.is_asked.wait()
    children = sweep.store.children

    async def listed(path: str, *rest: Any) -> list[str]:
        names = await children(path, *rest)
        if path == paths.TOPICS:
            held.is_back.set()
            await coming
        return names

    sweep.store.children = listed  # type: ignore[method-assign]
    await sweep.run()
    topic = await coming
    assert await children(paths.topic_partitions(topic.id_text)) == ["0", "1", "2"]


async def test_a_sweep_behind_a_server_that_lags_leaves_topics_of_earlier_releases(
    world: ClusterViews,
) -> None:
    """Their creation sets no directory, so nothing but the topic's node tells of it (SYNC)."""
    sweep = Sweep(world)
    store = world.stores[1]
    topic = await made_by(store)
    directory = paths.topic_partitions(topic.id_text)
    data = (await store.get(paths.topic("t"))).data
    await store.delete(paths.topic("t"))
    for index in range(3):
        await store.delete(f"{directory}/{index}")
    await store.delete(directory)
    for path in (directory, *(f"{directory}/{index}" for index in range(3))):
        await store.create(path)
    world.tree.freeze(sweep.store)
    await store.create(paths.topic("t"), data)
    await sweep.run()
    assert await store.children(directory) == ["0", "1", "2"]
