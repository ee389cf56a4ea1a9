"""What metadata answers know of leader epochs, and how often that is asked of the store."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster.leader_epochs import LeaderEpochs
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster, Operation
from client.metadata.store import MetadataStore
from tests.fakes import virtual_time
from tests.fakes.topics import topic_info

COUNT = 3
TOPIC = topic_info(COUNT)


class World:
    """Three partitions in a store, and how many requests read of them."""

    def __init__(self) -> None:
        self.tree = MemoryCluster()
        self.store: MetadataStore = self.tree.session()
        self.epochs = LeaderEpochs(self.store)
        self.reads = 0
        self.tree.on_request = self._count

    async def set(self, index: int, epoch: int) -> None:
        path = paths.partition(TOPIC.id_text, index)
        data = b'{"version":1,"leader_epoch":%d,"log_start_offset":0,"segments":[]}' % epoch
        if await self.store.exists(path) is None:
            await self.store.create(path, data, make_parents=True)
        else:
            await self.store.set(path, data)

    async def load(self) -> tuple[int, ...]:
        await self.epochs.load([TOPIC])
        return self.epochs.of(TOPIC)

    def _count(self, operation: Operation) -> Fault | None:
        self.reads += operation.name in ("get", "get_many")
        return None


async def filled() -> World:
    world = World()
    for index in range(COUNT):
        await world.set(index, 5)
    return world


def test_what_did_not_change_is_read_once() -> None:
    async def scenario() -> None:
        world = await filled()
        assert world.epochs.of(TOPIC) == (-1, -1, -1)
        assert await world.load() == (5, 5, 5)
        await world.set(1, 6)
        assert await world.load() == (5, 6, 5)
        assert await world.load() == (5, 6, 5)
        assert world.reads == 2, "all together, then one alone"

    virtual_time.run(scenario())


def test_it_knows_which_partitions_nobody_opened_yet() -> None:
    async def scenario() -> None:
        world = World()
        for index in range(COUNT):
            path = paths.partition(TOPIC.id_text, index)
            await world.store.create(path, b"", make_parents=True)
        assert world.epochs.unled(TOPIC) == {0, 1, 2}, "it was not asked for"
        assert await world.load() == (-1, -1, -1)
        assert world.epochs.unled(TOPIC) == {0, 1, 2}
        await world.set(1, 0)
        await world.load()
        assert world.epochs.unled(TOPIC) == {0, 2}
        await world.store.delete(paths.partition(TOPIC.id_text, 2))
        await world.load()
        assert world.epochs.unled(TOPIC) == {0}, "what the store does not tell may have a leader"
        assert world.epochs.unled(topic_info(COUNT + 1)) == {0, COUNT}

    virtual_time.run(scenario())


def test_all_who_ask_at_once_wait_for_one_reading() -> None:
    async def scenario() -> None:
        world = await filled()
        assert await asyncio.gather(*(world.load() for _ in range(50))) == 50 * [(5, 5, 5)]
        assert world.reads == 1

    virtual_time.run(scenario())


def test_who_asks_while_others_wait_sees_what_changed_before() -> None:
    async def scenario() -> None:
        world = await filled()
        first = asyncio.ensure_future(world.load())
        await asyncio.sleep(0)
        await world.set(0, 6)
        assert (await world.load())[0] == 6
        await first

    virtual_time.run(scenario())


def test_who_gives_up_stops_nobody_else() -> None:
    async def scenario() -> None:
        world = await filled()
        first = asyncio.ensure_future(world.load())
        await asyncio.sleep(0)
        second = asyncio.ensure_future(world.load())
        await asyncio.sleep(0)
        first.cancel()
        assert await second == (5, 5, 5)
        assert world.reads == 1

    virtual_time.run(scenario())


def test_an_old_answer_is_given_while_the_store_dawdles() -> None:
    async def scenario() -> None:
        world = await filled()
        await world.load()
        await world.set(0, 6)
        await asyncio.sleep(1)
        world.tree.latency = lambda: 10.0
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await world.load() == (5, 5, 5)
        assert loop.time() - began_s == pytest.approx(3.0)
        await asyncio.sleep(30)
        assert await world.load() == (6, 5, 5)

    virtual_time.run(scenario())


def test_closing_ends_the_reading() -> None:
    async def scenario() -> None:
        world = await filled()
        world.tree.latency = lambda: 10.0
        asking = asyncio.ensure_future(world.load())
        await asyncio.sleep(1)
        await world.epochs.close()
        with pytest.raises(asyncio.CancelledError):
            await asking

    virtual_time.run(scenario())
