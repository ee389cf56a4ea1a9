"""Too few bookies for a topic: writes go on with fewer copies, and get back to all of them.

RF 3 with min.insync.replicas 2 must live through the loss of a bookie, also when the broker that
leads a partition dies meanwhile, or starts only then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.cluster.core.topology import TopicInfo
from broker.errors import NotLeader
from broker.leadership.under_replicated_roller import UnderReplicatedRoller
from broker.partition.partition import Partition
from client.ids import LedgerId
from client.ledger.core.ledger_metadata import LedgerMetadata
from tests.fakes.brokers import Broker, ClientBackend, World, batch, done, read_all, until
from tests.fakes.virtual_time import run

Scenario = Callable[[World, TopicInfo], Awaitable[None]]


async def nothing_marked() -> list[LedgerId]:
    return []


def play(scenario: Scenario) -> None:
    """Run a scenario on three bookies, b1 to b3, and a topic with three copies."""

    async def whole() -> None:
        world = await World(ClientBackend()).start()
        world.backend.bookies.set_writable(["b1:1", "b2:1", "b3:1"])
        topic = await world.topic(min_insync_replicas="2")
        try:
            await scenario(world, topic)
        finally:
            await world.close()

    run(whole())


def lose(world: World, *names: str) -> None:
    """Take bookies away for good: they answer nothing, and their registrations have expired."""
    bookies = world.backend.bookies
    for name in names:
        bookies[name].crash()
    bookies.set_writable([name for name in bookies.writable if name not in names])


def give_back(world: World, *names: str) -> None:
    """Let new, empty bookies join."""
    bookies = world.backend.bookies
    bookies.set_writable([*bookies.writable, *names])


def ledger_of(world: World, topic: TopicInfo, index: int = -1) -> LedgerId:
    return world.segments(topic).segments[index].ledger_id


async def metadata_of(broker: Broker, ledger_id: LedgerId) -> LedgerMetadata:
    found: LedgerMetadata = await broker.ledgers.describe(ledger_id)
    return found


async def values(partition: Partition) -> list[str]:
    return [value for _, value in await read_all(partition)]


async def append(partition: Partition, *values: str) -> None:
    for value in values:
        await done(partition.append(batch(value)))


def test_a_bookie_and_then_the_broker_die_for_good() -> None:
    async def scenario(world: World, topic: TopicInfo) -> None:
        first = await world.broker(1)
        await append(await first.leads(topic), "a", "b")
        lose(world, "b2:1")
        await append(await first.leads(topic), "c")
        second = await world.broker(2)
        first.kill()
        partition = await second.leads(topic)
        await append(partition, "d")
        assert await values(partition) == ["a", "b", "c", "d"]
        shrunk = await metadata_of(second, ledger_of(world, topic))
        assert (shrunk.ensemble_size, shrunk.write_quorum, shrunk.ack_quorum) == (2, 2, 2)
        assert partition.replication.is_under_replicated

    play(scenario)


def test_back_to_full_strength_when_a_bookie_joins() -> None:
    async def scenario(world: World, topic: TopicInfo) -> None:
        lose(world, "b3:1")
        broker = await world.broker(1)
        strength = UnderReplicatedRoller(broker.partitions, broker.ledgers, nothing_marked)
        strength.start()
        partition = await broker.leads(topic)
        await append(partition, "a")
        shrunk = ledger_of(world, topic)
        give_back(world, "b4:1")
        await until(
            lambda: (
                ledger_of(world, topic) != shrunk and not partition.replication.is_under_replicated
            )
        )
        await append(partition, "b")
        full = await metadata_of(broker, ledger_of(world, topic))
        assert (full.ensemble_size, full.write_quorum, full.ack_quorum) == (3, 3, 2)
        assert "b4:1" in full.last_fragment.ensemble
        assert await values(partition) == ["a", "b"]
        await asyncio.sleep(120)
        assert len(world.segments(topic).segments) == 2, "once is enough"
        await strength.close()

    play(scenario)


def test_a_bookie_that_only_restarts_costs_no_roll() -> None:
    """Its ledger's quorums are right: it is taken back there, and its gaps are auto recovery's."""

    async def scenario(world: World, topic: TopicInfo) -> None:
        broker = await world.broker(1)
        strength = UnderReplicatedRoller(broker.partitions, broker.ledgers, nothing_marked)
        strength.start()
        partition = await broker.leads(topic)
        lose(world, "b1:1")
        await append(partition, "a", "b")
        assert partition.replication.is_under_replicated
        await asyncio.sleep(5)
        world.backend.bookies["b1:1"].is_down = False
        give_back(world, "b1:1")
        while partition.replication.is_under_replicated:
            await append(partition, "c")
            await asyncio.sleep(0.5)
        await asyncio.sleep(120)
        assert len(world.segments(topic).segments) == 1
        await strength.close()

    play(scenario)


def test_a_ledger_with_a_lost_member_is_continued_in_another_one() -> None:
    """Before auto recovery closes it. Nobody who writes notices, also where nobody writes."""

    async def scenario(world: World, topic: TopicInfo) -> None:
        broker = await world.broker(1)
        strength = UnderReplicatedRoller(broker.partitions, broker.ledgers, nothing_marked)
        strength.start()
        busy = await broker.leads(topic)
        idle_topic = await world.topic("idle", min_insync_replicas="2")
        idle = await broker.leads(idle_topic)
        lose(world, "b1:1")
        for _ in range(60):
            await append(busy, "x")
            await asyncio.sleep(0.5)
        for each in (topic, idle_topic):
            closed, active = world.segments(each).segments
            assert (await metadata_of(broker, closed.ledger_id)).is_closed
            found = await metadata_of(broker, active.ledger_id)
            assert "b1:1" not in found.last_fragment.ensemble
        assert busy.is_open
        assert idle.is_open
        assert await values(busy) == ["x"] * 60
        await strength.close()

    play(scenario)


def test_never_below_the_ack_quorum() -> None:
    """One bookie cannot keep two copies: the partition waits, and then goes on."""

    async def scenario(world: World, topic: TopicInfo) -> None:
        first = await world.broker(1)
        await append(await first.leads(topic), "a")
        lose(world, "b1:1", "b2:1")
        await first.stop()
        second = await world.broker(2)
        await asyncio.sleep(30)
        with pytest.raises(NotLeader):
            second.partitions.leader(topic.name, 0)
        bookies = world.backend.bookies
        bookies["b1:1"].is_down = False
        give_back(world, "b1:1")
        partition = await second.leads(topic)
        await append(partition, "b")
        assert await values(partition) == ["a", "b"]

    play(scenario)


def test_a_roll_in_a_degraded_cluster_goes_on_with_fewer_copies() -> None:
    async def scenario(world: World, topic: TopicInfo) -> None:
        broker = await world.broker(1)
        partition = await broker.leads(topic)
        await append(partition, "a")
        lose(world, "b3:1")
        await partition.changes.roll()
        await append(partition, "b")
        shrunk = await metadata_of(broker, ledger_of(world, topic))
        assert (shrunk.write_quorum, shrunk.ack_quorum) == (2, 2)
        assert await values(partition) == ["a", "b"]

    play(scenario)
