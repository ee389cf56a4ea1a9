"""Retention beside compaction: what goes by time, by size and by DeleteRecords, and what stays."""

from __future__ import annotations

import asyncio

from broker.partition.partition import Partition
from client.ids import Offset
from client.log.segments import Segment
from tests.fakes.brokers import Broker, World, done, forget_cache, settle, with_config
from tests.fakes.keyed import Kept, keyed, newest, read_keyed
from tests.fakes.one_partition import one_partition
from tests.unit.broker.compaction.test_compactor import COMPACT, compactor

BOTH = {
    **COMPACT,
    "cleanup_policy": "compact,delete",
    "message_timestamp_after_max_ms": str(1 << 60),
}
HOUR_MS = 3_600_000
UNLIMITED = str((1 << 63) - 1)


async def write(partition: Partition, timestamp_ms: int, *pairs: tuple[str, str]) -> list[Kept]:
    """Append a batch of a time and roll."""
    base = await done(partition.append(keyed(*pairs, timestamp_ms=timestamp_ms)))
    await partition.changes.roll()
    return [Kept(base + at, key, value) for at, (key, value) in enumerate(pairs)]


def sealed(world: World, partition: Partition) -> list[Segment]:
    return [one for one in world.segments(partition.topic).segments if one.facts is not None]


async def hours(world: World, partition: Partition, *, first: int = 6) -> list[Kept]:
    """Write a segment for each of the last hours, with a key that changes and one of its own."""
    now_ms = world.clock.now_ms()
    written: list[Kept] = []
    for ago in range(first, 0, -1):
        at_ms = now_ms - ago * HOUR_MS
        written += await write(partition, at_ms, ("a", f"{ago}"), (f"only {ago}", "v"))
    return written


def test_by_time_a_compacted_segment_is_as_old_as_its_newest_record() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await hours(world, partition)
        await compactor(broker, partition).visit_all()
        ages = [one.facts.max_timestamp_ms for one in sealed(world, partition) if one.facts]
        await partition.changes.maintain(world.clock.now_ms())
        forget_cache(partition)
        left = await read_keyed(partition)
        assert ages == sorted(ages)
        assert partition.log_start_offset == left[0].offset
        kept = {one.key for one in left}
        assert {"only 1", "only 2", "a"} <= kept
        assert newest(left)["a"] == newest(written)["a"]
        assert not {"only 5", "only 6"} & kept

    # Groups of the size of a segment: what is compacted stays divided, so the oldest can go.
    one_partition(
        scenario, config={**BOTH, "retention_ms": str(int(2.5 * HOUR_MS)), "segment_bytes": "200"}
    )


def test_merged_segments_stay_until_the_newest_of_them_is_old() -> None:
    """As in Kafka: a segment goes whole, and compaction makes small ones into a large one."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await hours(world, partition)
        await compactor(broker, partition).visit_all()
        cleaned = [one for one in sealed(world, partition) if one.cleaned]
        assert len(cleaned) == 1
        now_ms = world.clock.now_ms()
        assert cleaned[0].facts is not None
        newest_ms = cleaned[0].facts.max_timestamp_ms
        # Its oldest record is older by hours.
        await partition.changes.maintain(newest_ms + int(2.5 * HOUR_MS))
        assert partition.log_start_offset == 0
        await partition.changes.maintain(newest_ms + int(2.5 * HOUR_MS) + 1)
        assert partition.log_start_offset == cleaned[0].end_offset
        assert now_ms

    one_partition(scenario, config={**BOTH, "retention_ms": str(int(2.5 * HOUR_MS))})


def test_by_size_what_compaction_saves_need_not_be_deleted() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        big = "x" * 2000
        for number in range(8):
            await write(partition, world.clock.now_ms(), ("a", f"{number}{big}"))
        before = partition.usage.size_bytes
        assert before > 16_000
        await compactor(broker, partition).visit_all()
        assert partition.usage.size_bytes < 9_000
        await partition.changes.maintain(world.clock.now_ms())
        assert partition.log_start_offset == 0, "it is small enough now"
        for number in range(4):
            await write(partition, world.clock.now_ms(), (f"other {number}", big))
        await partition.changes.maintain(world.clock.now_ms())
        assert partition.log_start_offset > 0
        assert partition.usage.size_bytes - 2200 <= 9_000

    one_partition(scenario, config={**BOTH, "retention_bytes": "9000", "retention_ms": "-1"})


def test_a_record_from_the_future_pins_what_follows_and_is_compacted_all_the_same() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        now_ms = world.clock.now_ms()
        await write(partition, now_ms - 9 * HOUR_MS, ("old", "1"))
        written = await write(partition, now_ms + 1000 * HOUR_MS, ("a", "future"))
        for number in range(4):
            written += await write(partition, now_ms - 8 * HOUR_MS, ("a", f"{number}"))
        await partition.changes.maintain(now_ms)
        assert partition.log_start_offset == 1, "the segment before it goes"
        await compactor(broker, partition).visit_all()
        forget_cache(partition)
        left = await read_keyed(partition)
        assert [one.value for one in left] == ["2", "3"]
        # Its time is gone with it: nothing pins the log any more. A segment without records is as
        # old as its end.
        await partition.changes.maintain(now_ms + 2 * HOUR_MS)
        assert partition.log_start_offset > 1

    one_partition(scenario, config={**BOTH, "retention_ms": str(HOUR_MS), "segment_bytes": "150"})


def test_delete_records_in_the_middle_of_a_compacted_segment() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await hours(world, partition)
        await compactor(broker, partition).visit_all()
        forget_cache(partition)
        before = await read_keyed(partition)
        assert await partition.changes.delete_records(Offset(3)) == 3
        forget_cache(partition)
        assert await read_keyed(partition) == [one for one in before if one.offset >= 3]
        # The next round reads from the log's start, and the rest is as it was.
        written += await write(partition, world.clock.now_ms(), ("a", "new"))
        written += await write(partition, world.clock.now_ms(), ("a", "newer"))
        await compactor(broker, partition).visit_all()
        forget_cache(partition)
        left = await read_keyed(partition)
        assert {one.key for one in left} == {one.key for one in written if one.offset >= 3}
        assert newest(left)["a"].value == "newer"

    one_partition(scenario, config=BOTH)


def test_a_changed_setting_counts_from_the_next_look() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await hours(world, partition)
        cleaning = compactor(broker, partition)
        await cleaning.visit_all()
        assert cleaning.status(partition) is None, "it is not compacted yet"
        partition.configure(with_config(partition.topic, **{**BOTH, "retention_ms": UNLIMITED}))
        await cleaning.visit_all()
        assert cleaning.status(partition) is not None
        forget_cache(partition)
        left = await read_keyed(partition)
        assert newest(left) == newest(written)
        assert len(left) < len(written)
        # Not compacted any more: what is left stays as it is, and goes by its age alone.
        only = {"cleanup_policy": "delete", "retention_ms": str(HOUR_MS // 2)}
        partition.configure(with_config(partition.topic, **only))
        await write(partition, world.clock.now_ms(), ("a", "x"))
        await write(partition, world.clock.now_ms(), ("a", "y"))
        rounds = broker.services.metrics.compaction_rounds
        await cleaning.visit_all()
        assert broker.services.metrics.compaction_rounds == rounds
        assert cleaning.status(partition) is None
        await partition.changes.maintain(world.clock.now_ms())
        forget_cache(partition)
        assert [one.value for one in await read_keyed(partition)] == ["x", "y"]
        # What was replaced is let go all the same.
        await asyncio.sleep(60.001)
        await broker.services.lease.ask(broker.store)
        await cleaning.visit_all()
        await settle()
        assert world.segments(partition.topic).compaction.retired == ()

    one_partition(scenario, config={"cleanup_policy": "delete", "retention_ms": "-1"})
