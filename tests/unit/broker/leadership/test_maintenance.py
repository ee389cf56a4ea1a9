"""What brokers do to the partitions that they lead, now and again."""

from __future__ import annotations

from broker.leadership.maintenance import Maintenance
from tests.fakes.brokers import World, batch, done, in_world, until


def test_maintenance_visits_every_partition() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic(partition_count=3, retention_ms="1000", segment_ms="5000")
        broker = await world.broker(1)
        for index in range(3):
            partition = await broker.leads(topic, index)
            await done(partition.append(batch("x", timestamp_ms=world.clock.now_ms())))
        rounds = Maintenance(broker.partitions, world.clock, interval_s=2.0)
        rounds.start()
        await until(lambda: all(one.log_start_offset == 1 for one in broker.partitions))
        await rounds.close()
        assert [one.log_start_offset for one in broker.partitions] == [1, 1, 1]

    in_world(scenario)
