"""Compaction of a led partition over scripted ledgers: rounds, swaps, readers, grace, failures."""

from __future__ import annotations

import asyncio

from broker.compaction.compactor import Compactor
from broker.compaction.config import CompactionConfig
from broker.partition.partition import Partition
from client.ids import Offset
from tests.fakes.brokers import Broker, World, done, forget_cache, settle
from tests.fakes.keyed import Kept, keyed, newest, read_keyed
from tests.fakes.one_partition import one_partition

COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
DAY_MS = 86_400_000


def compactor(broker: Broker, *partitions: Partition, **settings: int) -> Compactor:
    """Return the compactor of a broker, without a limit of its speed."""
    return Compactor(
        broker.services,
        partitions,
        CompactionConfig(bytes_per_s=0, **{"grace_ms": 60_000, **settings}),
    )


async def write(partition: Partition, *pairs: tuple[str, str | None]) -> list[Kept]:
    """Append a batch and roll, so that it is a segment of its own."""
    base = await done(partition.append(keyed(*pairs)))
    await partition.changes.roll()
    return [Kept(base + at, key, value) for at, (key, value) in enumerate(pairs)]


async def filled(partition: Partition, rounds: int = 6) -> list[Kept]:
    """Overwrite two of three keys again and again, a segment each."""
    written = await write(partition, ("only", "once"))
    for number in range(rounds):
        written += await write(partition, ("a", f"a{number}"), ("b", f"b{number}"))
    forget_cache(partition)
    return written


def test_the_last_value_of_each_key_stays_where_it_was() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        end = partition.log_end_offset
        await compactor(broker, partition).visit_all()
        found = await read_keyed(partition)
        # The last two segments with records are not cleaned.
        assert found == [written[0], *written[-4:]]
        assert partition.log_end_offset == end
        assert {*found} <= {*written}
        assert newest(found) == newest(written)

    one_partition(scenario, config=COMPACT)


def test_every_offset_can_still_be_asked_for() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        await compactor(broker, partition).visit_all()
        whole = await read_keyed(partition)
        for start in range(partition.high_watermark):
            forget_cache(partition)
            assert await read_keyed(partition, start) == [
                one for one in whole if one.offset >= start
            ]

    one_partition(scenario, config=COMPACT)


def test_a_reader_of_an_old_ledger_goes_on_until_its_grace_is_over() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        old = world.segments(partition.topic)
        cleaning = compactor(broker, partition)
        await cleaning.visit_all()
        forget_cache(partition)
        by_old_list = await partition.reader._log.read(
            old, Offset(0), partition.high_watermark, 1 << 20, at_least_one=True
        )
        assert by_old_list.next_offset == 1
        listed = world.segments(partition.topic)
        retired = [one.ledger_id for one in listed.compaction.retired]
        assert retired
        assert {*retired} <= {*world.ledger_ids()}
        await asyncio.sleep(60.001)
        await broker.services.lease.ask(broker.store)
        await cleaning.visit_all()
        await settle()
        assert not {*retired} & {*world.ledger_ids()}
        assert world.segments(partition.topic).compaction.retired == ()
        assert newest(await read_keyed(partition)) == newest(written)

    one_partition(scenario, config=COMPACT)
