"""Changes of a led partition's chain of ledgers: rolls, trims, retention."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import (
    CompactionFailed,
    LeadershipLost,
    OffsetOutOfRange,
    Overloaded,
    RequestTimedOut,
)
from broker.partition.partition import HIGH_WATERMARK, Partition
from client.errors import (
    NotEnoughBookies,
)
from client.ids import Offset
from client.log.compacted import Round
from client.log.segments import NEVER_COMPACTED
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.brokers import (
    Broker,
    World,
    batch,
    done,
    forget_cache,
    read_all,
    settle,
    until,
    with_config,
)
from tests.fakes.one_partition import fetch, one_partition


def test_reads_cross_segments() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(6):
            await done(partition.append(batch(f"v{number}")))
            if number % 2:
                await partition.changes.roll()
        expected = [(number, f"v{number}") for number in range(6)]
        assert await read_all(partition) == expected
        forget_cache(partition)
        assert await read_all(partition) == expected
        listed = world.segments(partition.topic)
        assert [item.base_offset for item in listed.segments] == [0, 2, 4, 6]
        assert [item.facts is not None for item in listed.segments] == [True, True, True, False]
        assert listed.leader_epoch == 0

    one_partition(scenario)


def test_reading_a_cold_log_to_its_end_reads_every_entry_about_once() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(400):
            partition.append(batch(f"v{number}"))
            if number % 100 == 99:
                await until(lambda n=number: partition.high_watermark == n + 1)
                await partition.changes.roll()
        forget_cache(partition)
        listed = world.segments(partition.topic).segments
        partition.reader.forget([item.ledger_id for item in listed[:-1]])
        world.backend.service.read_count = 0
        assert await read_all(partition) == [(n, f"v{n}") for n in range(400)]
        count = 400 + 2 * len(listed)  # a snapshot begins a ledger, and one ends it
        assert world.backend.service.read_count <= count, "no search, nothing read for an index"

    one_partition(
        scenario, read_entries_max=50, snapshot_interval_entries=1000, shared_entry_batches_max=1
    )


def test_a_full_segment_rolls_by_itself_and_writes_do_not_stop() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        world.backend.service.arrival_s = lambda: 0.003
        world.backend.service.answer_s = lambda: 0.002
        appends = []
        for number in range(200):
            appends.append(partition.append(batch(f"v{number}", pid=1, sequence=number, pad=200)))
            await asyncio.sleep(0.001)
        assert [await done(append) for append in appends] == list(range(200))
        await until(lambda: all(s.facts for s in world.segments(partition.topic).segments[:-1]))
        assert len(world.segments(partition.topic).segments) > 3
        forget_cache(partition)
        assert await read_all(partition) == [(n, f"v{n}") for n in range(200)]
        stored = world.backend.service.ledgers
        assert [led.closed_at is None for led in stored.values()].count(True) == 1

    one_partition(scenario, config={"segment_bytes": "5000"})


def test_nothing_is_sent_to_the_next_ledger_before_the_previous_one_is_complete() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        before = partition.append(batch("a"))
        rolling = asyncio.create_task(partition.changes.roll())
        await until(lambda: len(world.segments(partition.topic).segments) == 2)
        await settle()
        after = partition.append(batch("b"))
        await settle()
        old, new = (writer.ledger for writer in broker.ledgers.writers)
        assert len(old.entries) == 3  # snapshot, "a", the snapshot that ends the segment
        assert new.entries == []
        assert not before.completed
        broker.ledgers.release()
        assert [await done(before), await done(after)] == [0, 1]
        await rolling
        assert len(new.entries) == 2

    one_partition(scenario)


@pytest.mark.parametrize("change", ["roll", "trim"])
def test_a_change_goes_on_when_its_caller_goes_away(change: str) -> None:
    """A client that closes its connection in the middle of a request must not stop the log."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        for cancelled_after in range(12):
            call = (
                partition.changes.roll()
                if change == "roll"
                else partition.changes.delete_records(Offset(1))
            )
            asking = asyncio.create_task(call)
            await settle(cancelled_after)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            append = partition.append(batch("x"))
            async with asyncio.timeout(5):
                await done(append)
                await partition.changes.roll()
            assert partition.is_open

    one_partition(scenario)


def test_changes_behind_a_roll_that_does_not_end_are_withdrawn_in_time() -> None:
    """IN-TIME: whoever visits many partitions must not wait for one without end."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        changes = partition.changes
        broker.ledgers.hold_answers = True
        partition.append(batch("b"))
        rolling = asyncio.ensure_future(changes.roll(5.0))
        await asyncio.sleep(1)
        assert changes.is_rolling
        at_s = asyncio.get_running_loop().time()
        for change, late in (
            (changes.delete_records(Offset(1), 3.0), RequestTimedOut),
            (changes.release(0), CompactionFailed),
            (changes.compact(None, Round(Offset(1), 0)), CompactionFailed),
            (changes.roll(4.0), Overloaded),
        ):
            with pytest.raises(late):
                await change
        assert asyncio.get_running_loop().time() - at_s == pytest.approx(30 + 30 + 3 + 4)
        with pytest.raises(Overloaded):
            await rolling
        assert changes.is_rolling, "what has begun goes on"
        broker.ledgers.release()
        await until(lambda: not changes.is_rolling)
        await settle()
        assert len(world.segments(partition.topic).segments) == 2, "and what was withdrawn is gone"
        assert partition.log_start_offset == 0
        assert partition.usage.listed.compaction == NEVER_COMPACTED
        await broker.services.lease.ask(broker.store)
        assert await changes.delete_records(Offset(1), 3.0) == 1

    one_partition(scenario)


def test_a_roll_without_bookies_leaves_the_log_as_it_is() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        world.backend.service.fail_next("create", NotEnoughBookies("two are away"))
        for number in range(3):
            await done(partition.append(batch(f"v{number}", pad=200)))
        await settle()
        assert partition.is_open
        assert len(world.segments(partition.topic).segments) == 1
        await asyncio.sleep(2)
        await done(partition.append(batch("v3")))
        await until(lambda: len(world.segments(partition.topic).segments) == 2)

    one_partition(scenario, config={"segment_bytes": "600"})


def test_delete_records_moves_the_log_start_and_drops_whole_segments() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(6):
            await done(partition.append(batch(f"v{number}")))
            if number % 2:
                await partition.changes.roll()
        await settle()
        assert await partition.changes.delete_records(Offset(1)) == 1
        assert len(world.segments(partition.topic).segments) == 4
        assert await partition.changes.delete_records(Offset(3)) == 3
        assert [item.base_offset for item in world.segments(partition.topic).segments] == [2, 4, 6]
        assert len(world.backend.service.deleted) == 1
        assert await read_all(partition) == [(3, "v3"), (4, "v4"), (5, "v5")]
        with pytest.raises(OffsetOutOfRange):
            await fetch(partition, 2)
        with pytest.raises(OffsetOutOfRange):
            await partition.changes.delete_records(Offset(7))
        assert await partition.changes.delete_records(Offset(2)) == 3
        assert await partition.changes.delete_records(HIGH_WATERMARK) == 6
        assert world.segments(partition.topic).log_start_offset == 6
        assert len(world.segments(partition.topic).segments) == 1
        assert await done(partition.append(batch("v6"))) == 6

    one_partition(scenario)


def test_retention_drops_old_segments_and_rolls_the_active_one_when_it_is_old() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        now_ms = world.clock.now_ms()
        await done(partition.append(batch("old", timestamp_ms=now_ms)))
        await partition.changes.roll()
        await done(partition.append(batch("new", timestamp_ms=now_ms + 30_000)))
        await partition.changes.maintain(now_ms + 60_000)
        assert partition.log_start_offset == 0
        await partition.changes.maintain(now_ms + 60_001)
        assert partition.log_start_offset == 1
        await partition.changes.maintain(now_ms + 90_001)
        await until(lambda: len(world.segments(partition.topic).segments) == 2)
        await settle()
        await partition.changes.maintain(now_ms + 90_001)
        assert partition.log_start_offset == partition.high_watermark == 2
        await partition.changes.maintain(now_ms + 10**9)
        await settle()
        assert len(world.segments(partition.topic).segments) == 1, "an idle topic does not grow"

    one_partition(scenario, config={"retention_ms": "60000"})


def test_retention_by_size() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(4):
            await done(partition.append(batch(f"v{number}", pad=1000)))
            await partition.changes.roll()
        await settle()
        await partition.changes.maintain(world.clock.now_ms())
        assert partition.log_start_offset == 1

    one_partition(scenario, config={"retention_bytes": "3000"})


def test_a_trim_that_is_not_listed_deletes_nothing() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        await partition.changes.roll()
        await settle()
        before = world.segments(partition.topic)
        path = partition.changes._steps.node.path
        world.cluster.tree.set(path, before.encode(), -1)
        with pytest.raises(LeadershipLost):
            await partition.changes.delete_records(HIGH_WATERMARK)
        assert world.ledger_ids() == [item.ledger_id for item in before.segments]

    one_partition(scenario)


def test_compacted_topics_are_not_trimmed() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        partition.configure(
            with_config(
                partition.topic, cleanup_policy="compact", retention_ms="1", retention_bytes="1"
            )
        )
        await done(partition.append(build_batch([Record(b"k", b"v", 5)])))
        await partition.changes.roll()
        await settle()
        await partition.changes.maintain(world.clock.now_ms() + 10**6)
        assert partition.log_start_offset == 0

    one_partition(scenario)


def test_no_segment_goes_before_the_active_ledger_can_replace_what_it_knows() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        await settle()
        world.backend.service.arrival_s = lambda: 5.0
        rolling = asyncio.create_task(partition.changes.roll())
        await rolling
        assert await partition.changes.delete_records(HIGH_WATERMARK) == 1
        assert len(world.segments(partition.topic).segments) == 2
        await asyncio.sleep(10)
        await partition.changes.maintain(world.clock.now_ms())
        assert len(world.segments(partition.topic).segments) == 1

    one_partition(scenario)


def test_the_next_ledger_has_the_quorums_that_the_topic_has_now() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        assert broker.ledgers.writers[0].metadata.ack_quorum == 2
        partition.configure(with_config(partition.topic, min_insync_replicas="3"))
        await partition.changes.roll()
        assert broker.ledgers.writers[1].metadata.ack_quorum == 3

    one_partition(scenario, config={"min_insync_replicas": "2"})
