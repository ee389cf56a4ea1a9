"""The cluster view, on the in-memory metadata store."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from broker.config import BrokerConfig
from client.ids import BrokerId
from client.metadata import paths
from tests.fakes.brokers import until
from tests.fakes.cluster_views import ClusterViews, broker_info, settle
from tests.fakes.virtual_time import run


@pytest.fixture
async def world() -> AsyncIterator[ClusterViews]:
    made = ClusterViews()
    await made.start()
    yield made
    await made.close()


async def test_a_broker_lists_itself_before_it_is_registered_and_as_registered(
    world: ClusterViews,
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


async def test_views_share_one_cluster_id(world: ClusterViews) -> None:
    first, second = world.views
    assert first.cluster_id == second.cluster_id
    assert len(first.cluster_id) == 22


async def test_brokers_come_and_go(world: ClusterViews) -> None:
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
        world = ClusterViews()
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


async def test_a_changed_registration_is_seen(world: ClusterViews) -> None:
    _, second = world.views
    path = paths.broker(BrokerId(1))
    await world.stores[0].create(path, broker_info(1).encode(), ephemeral=True)
    await settle(lambda: len(second.brokers) == 1)
    moved = dataclasses.replace(broker_info(1), port=1)
    await world.stores[0].set(path, moved.encode())
    await settle(lambda: second.brokers[BrokerId(1)].port == 1)


async def test_an_unreadable_registration_is_left_out(world: ClusterViews) -> None:
    _, second = world.views
    await world.stores[0].create(paths.broker(BrokerId(1)), b"garbage", ephemeral=True)
    await world.stores[0].create(paths.broker(BrokerId(2)), broker_info(2).encode())
    await settle(lambda: list(second.brokers) == [2])


async def test_topics_are_spread_over_live_brokers(world: ClusterViews) -> None:
    first, _ = world.views
    topic = await world.topics[0].create("t", 4)
    assert first.preferred_leader(topic, 0) is None
    for number in (1, 2):
        path, info = paths.broker(BrokerId(number)), broker_info(number)
        await world.stores[0].create(path, info.encode(), ephemeral=True)
    await settle(lambda: len(first.brokers) == 2)
    owners = [first.preferred_leader(topic, index) for index in range(4)]
    assert sorted(filter(None, owners)) == [1, 1, 2, 2]
    assert first.preferred_leader(topic, 9) is None


async def test_the_view_survives_an_expired_session(world: ClusterViews) -> None:
    _, second = world.views
    world.tree.expire(world.stores[1])
    await world.topics[0].create("t")
    await asyncio.sleep(0.2)
    await settle(lambda: "t" in second.topics)


async def test_leader_epochs_are_read_when_asked_for(world: ClusterViews) -> None:
    first, _ = world.views
    topic = await world.topics[0].create("t", 2)
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
    await world.topics[0].delete("t")
    assert epochs.get(topic, 0) == -1


async def test_an_unloaded_broker_is_preferred_nowhere(world: ClusterViews) -> None:
    first, _ = world.views
    admin = world.tree.session()
    for number in (1, 2):
        await admin.create(paths.broker(BrokerId(number)), broker_info(number).encode())
    await settle(lambda: len(first.brokers) == 2)
    topic = await world.topics[0].create("t", 6)
    assert {first.preferred_leader(topic, index) for index in range(6)} == {1, 2}
    unloaded = dataclasses.replace(broker_info(1), unloaded=True)
    await admin.set(paths.broker(BrokerId(1)), unloaded.encode())
    await settle(lambda: first.brokers[BrokerId(1)].unloaded)
    assert {first.preferred_leader(topic, index) for index in range(6)} == {2}


async def test_a_broker_counts_as_alive_while_its_registration_becomes_readable_again(
    world: ClusterViews,
) -> None:
    view, admin = world.views[0], world.tree.session()
    broker = broker_info(3)
    path = paths.broker(broker.id)
    await admin.create(path, broker.encode(), ephemeral=True)
    await settle(lambda: broker.id in view.brokers)
    await admin.set(path, b"edited by hand")
    await settle(lambda: view.unreadable_brokers == [broker.id])
    world.tree.latency = lambda: 0.001  # the directory is read in steps, and shown when all is read
    await asyncio.gather(
        admin.set(path, broker.encode()),
        admin.create(paths.broker(BrokerId(4)), broker_info(4).encode(), ephemeral=True),
    )
    while BrokerId(4) not in view.brokers:
        assert view.is_registered(broker.id, broker.incarnation)
        await asyncio.sleep(0)
    assert view.is_registered(broker.id, broker.incarnation)
    assert not view.is_registered(broker.id, "another run")
