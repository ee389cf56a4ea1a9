"""What taking partitions over costs in requests to the metadata store: counted, so that it stays.

The real ledger client over in-process bookies, real ownership, the metadata store in memory, where
a message takes a millisecond. What is counted is what one broker asks about partitions and ledgers.
And what leaves together may get lost together: the rules of TAKEOVER.md hold for each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from broker.cluster.core.topology import TopicInfo
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from tests.fakes.brokers import Broker, ClientBackend, World, batch, done, settle, until
from tests.fakes.virtual_time import run

TOGETHER = 128
"""As many as one broker takes over at the same time."""


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = await World(ClientBackend()).start()
        world.cluster.latency = lambda: 0.001
        try:
            await scenario(world)
        finally:
            await world.close()

    run(whole())


def counted(world: World) -> Counter[str]:
    """Count the requests about partitions and ledgers by their names, from now on."""
    seen: Counter[str] = Counter()
    ledgers = (f"{paths.LEDGERS_ROOT}/0", paths.ledger_id_prefix())

    def count(operation: Operation) -> None:
        if operation.path.startswith((f"{paths.PARTITIONS}/", *ledgers)):
            seen[operation.name] += 1

    world.cluster.on_request = count
    return seen


async def all_led(broker: Broker, topic: TopicInfo) -> None:
    count = topic.partition_count
    await until(lambda: all(broker.partitions.find(topic.name, index) for index in range(count)))
    await settle()


async def led_by_one_that_died(world: World, partition_count: int) -> TopicInfo:
    """Return a topic with a record in each partition, whose leader is gone and known to be.

    Its owner nodes stand: its session has not timed out yet.
    """
    topic = await world.topic(partition_count=partition_count)
    dead = await world.broker(1)
    await all_led(dead, topic)
    for partition in dead.partitions:
        await done(partition.append(batch("a")))
    dead.kill()
    await world.admin.delete(paths.broker(BrokerId(1)))
    return topic


def test_one_new_partition() -> None:
    async def scenario(world: World) -> None:
        broker = await world.broker(1)
        await all_led(broker, await world.topic("before"))
        topic = await world.topic("t")
        seen = counted(world)
        await all_led(broker, topic)
        # Owner and list; owner and ledger id; ledger and list beside the end of the id's node. And
        # the owner with a watch, which nobody waits for.
        assert seen == {"get_many": 1, "multi": 2, "get": 1}

    in_world(scenario)


def test_one_partition_whose_leader_died() -> None:
    async def scenario(world: World) -> None:
        topic = await led_by_one_that_died(world, 1)
        seen = counted(world)
        await all_led(await world.broker(2), topic)
        # As above, and: the dead leader's ledger is read. It is set to be in recovery with the
        # claim, and closed with the commit. A process's first ledger id comes alone: it looks
        # before which kind of ids there are.
        assert seen == {"get_many": 1, "get": 2, "multi": 2, "create": 1}

    in_world(scenario)


def test_four_round_trips_until_the_next_broker_leads() -> None:
    """One that has led before knows which kind of ledger ids there are. The watch comes after."""

    async def scenario(world: World) -> None:
        next_one, dead = await world.broker(2), await world.broker(1)
        leaders = {"before": next_one.id, "t": dead.id}
        for broker in (next_one, dead):
            broker.cluster.preferred_leader = lambda topic, _: leaders[topic.name]  # type: ignore[method-assign]
        await all_led(next_one, await world.topic("before"))
        await all_led(dead, await world.topic("t"))
        await done(next(iter(dead.partitions)).append(batch("a")))
        dead.kill()
        leaders["t"] = next_one.id
        seen, loop = counted(world), asyncio.get_running_loop()
        world.cluster.latency = lambda: 1.0
        await world.admin.delete(paths.broker(dead.id))
        await until(lambda: seen)
        arrived_s = loop.time()
        await until(lambda: next_one.partitions.find("t", 0))
        assert seen == {"get_many": 1, "get": 1, "multi": 2}
        assert 7.0 <= loop.time() - arrived_s < 7.1

    in_world(scenario)


def test_many_new_partitions() -> None:
    async def scenario(world: World) -> None:
        broker = await world.broker(1)
        await all_led(broker, await world.topic("before"))
        topic = await world.topic("t", TOGETHER)
        seen = counted(world)
        await all_led(broker, topic)
        assert seen.total() < TOGETHER / 8, seen

    in_world(scenario)


def test_many_partitions_whose_leader_died() -> None:
    async def scenario(world: World) -> None:
        topic = await led_by_one_that_died(world, TOGETHER)
        seen = counted(world)
        await all_led(await world.broker(2), topic)
        assert seen.total() < TOGETHER / 8, seen

    in_world(scenario)


@pytest.mark.parametrize("fault", list(Fault))
def test_commits_that_get_lost_together_are_settled_one_by_one(fault: Fault) -> None:
    """OWN-ID: whoever took the silence for a refusal would have led, and would begin again."""

    async def scenario(world: World) -> None:
        broker = await world.broker(1)
        first = await world.topic("before")
        await all_led(broker, first)  # the directory of ledgers is there from now on
        topic = await world.topic("t", 8)
        lost: list[str] = []

        def lose(operation: Operation) -> Fault | None:
            # Of what begins with ledgers, ids are taken by one that names none.
            of_ledgers = operation.path.startswith(paths.LEDGERS_ROOT)
            takes_ids = operation.path == paths.ledger_id_prefix()
            if operation.name != "multi" or not of_ledgers or takes_ids or lost:
                return None
            lost.append(operation.path)
            return fault

        world.cluster.on_request = lose
        await all_led(broker, topic)
        assert len(lost) == 1
        listed = [world.segments(topic, index).segments[-1].ledger_id for index in range(8)]
        listed.append(world.segments(first).segments[-1].ledger_id)
        assert world.ledger_ids() == sorted(listed)
        assert [partition.leader_epoch for partition in broker.partitions] == [0] * 9
        for partition in broker.partitions:
            await done(partition.append(batch("a")))

    in_world(scenario)
