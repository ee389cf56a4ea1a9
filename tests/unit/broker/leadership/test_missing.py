"""Which partitions a broker says that it should lead and does not."""

from __future__ import annotations

from client.metadata import paths
from tests.fakes.brokers import World, batch, done, in_world, settle, until


def test_a_partition_is_missing_until_it_is_led_and_again_when_it_ends() -> None:
    async def scenario(world: World) -> None:
        broker = await world.broker(1)
        gate = world.backend.service.stop_at("create")
        topic = await world.topic("t", 2)
        await until(broker.ownership.missing)
        assert broker.ownership.missing() == ["t-0", "t-1"]
        gate.set()
        await until(lambda: not broker.ownership.missing())
        assert len(broker.partitions) == 2
        gate.clear()
        partition = await broker.leads(topic, 1)
        partition.resign("a test")
        await settle()
        assert broker.ownership.missing() == ["t-1"]
        gate.set()
        await done((await broker.leads(topic, 1)).append(batch("a")))
        assert broker.ownership.missing() == []

    in_world(scenario)


def test_what_others_should_lead_is_not_missing() -> None:
    async def scenario(world: World) -> None:
        first = await world.broker(1)
        world.backend.service.stop_at("create")
        await world.topic("t", 8)
        await until(lambda: len(first.ownership.missing()) == 8)
        second = await world.broker(2)
        missing = second.ownership.missing
        await until(lambda: len(first.ownership.missing()) == 4 == len(missing()))
        assert not set(first.ownership.missing()) & set(missing())
        await world.admin.delete(paths.topic("t"))
        await until(lambda: first.ownership.missing() == missing() == [])

    in_world(scenario)
