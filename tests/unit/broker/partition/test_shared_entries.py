"""Batches that come together share a ledger entry, and nobody who reads or writes can tell."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import CorruptBatch, LeadershipLost, OutOfOrderSequence
from broker.partition.partition import Partition
from client.errors import LedgerFenced
from client.log.entry_format import batch_headers, is_internal
from client.wire.kafka.batches.records import headers
from tests.fakes.brokers import Broker, World, batch, done, forget_cache, read_all, settle, until
from tests.fakes.one_partition import fetch, one_partition


def batches_by_entry(world: World) -> list[list[int]]:
    """Return the base offsets in each entry of all ledgers, internal entries left out."""
    return [
        [header.base_offset for _, header in batch_headers(payload)]
        for ledger in world.backend.service.ledgers.values()
        for payload in ledger.entries
        if not is_internal(payload)
    ]


def test_batches_of_one_turn_share_an_entry() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        appends = [partition.append(batch(name)) for name in "abc"]
        assert [await done(append) for append in appends] == [0, 1, 2]
        await done(partition.append(batch("d")))
        assert batches_by_entry(world) == [[0, 1, 2], [3]]
        expected = [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
        assert await read_all(partition) == expected
        forget_cache(partition)
        assert await read_all(partition) == expected

    one_partition(scenario)


def test_what_comes_while_two_entries_are_under_way_waits_for_one_of_them() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        appends = []
        for name in "abcdef":
            appends.append(partition.append(batch(name)))
            await settle()
        assert batches_by_entry(world) == [[0], [1]]
        assert partition.usage.in_flight_bytes == 6 * len(batch("a"))
        broker.ledgers.release()
        assert [await done(append) for append in appends] == [0, 1, 2, 3, 4, 5]
        assert batches_by_entry(world) == [[0], [1], [2, 3, 4, 5]]
        assert partition.usage.in_flight_bytes == 0

    one_partition(scenario)


def test_a_full_entry_does_not_wait() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        for number in range(9):
            partition.append(batch(str(number)))
        await settle()
        assert batches_by_entry(world) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]

    one_partition(scenario, shared_entry_batches_max=3)


def test_sizes_bound_an_entry_and_large_batches_have_one_each() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for pad in (300, 300, 300, 5000, 10):
            partition.append(batch("x", pad=pad))
        await done(partition.append(batch("y")))
        assert batches_by_entry(world) == [[0, 1], [2], [3], [4, 5]]

    one_partition(scenario, shared_entry_bytes_max=1000)


def test_one_refused_batch_leaves_its_neighbours_alone() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        first = partition.append(batch("a", pid=7))
        damaged = bytearray(batch("b", pid=7, sequence=1))
        damaged[-1] ^= 1
        with pytest.raises(CorruptBatch):
            partition.append(damaged)
        with pytest.raises(OutOfOrderSequence):
            partition.append(batch("c", pid=7, sequence=2))
        again = partition.append(batch("a", pid=7))
        assert again is first, "a duplicate of a batch that no entry holds yet"
        second = partition.append(batch("b", pid=7, sequence=1))
        assert [await done(first), await done(second)] == [0, 1]
        assert batches_by_entry(world) == [[0, 1]]

    one_partition(scenario, settling_ms=0)


def test_a_takeover_knows_every_batch_of_a_shared_entry() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        appends = [partition.append(batch("x", pid=7, sequence=number)) for number in range(4)]
        await asyncio.gather(*map(done, appends))
        assert batches_by_entry(world) == [[0, 1, 2, 3]]
        broker.kill()
        successor = await (await world.broker(2, owning=False)).open(partition.topic)
        assert successor.log_end_offset == 4
        again = successor.append(batch("x", pid=7, sequence=1))
        assert (again.completed, again.base_offset) == (True, 1)
        assert await done(successor.append(batch("y", pid=7, sequence=4))) == 4
        assert await read_all(successor) == [(0, "x"), (1, "x"), (2, "x"), (3, "x"), (4, "y")]

    one_partition(scenario)


def test_every_offset_inside_a_shared_entry_can_be_read_from_the_ledger() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(40):
            partition.append(batch(f"v{number}", timestamp_ms=1000 + number))
        await until(lambda: partition.high_watermark == 40)
        assert len(batches_by_entry(world)) == 4
        forget_cache(partition)
        for number in range(40):
            found = [header.base_offset for _, header in headers(await fetch(partition, number, 1))]
            assert found == [number]
            assert await partition.reader.offset_for_timestamp(1000 + number) == (
                number,
                1000 + number,
            )

    one_partition(scenario, shared_entry_batches_max=10)


def test_reads_that_end_inside_an_entry_go_on_without_a_search() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(400):
            partition.append(batch(f"v{number}"))
            if number % 10 == 9:
                await until(lambda n=number: partition.high_watermark == n + 1)
        assert len(batches_by_entry(world)) == 40
        await partition.changes.roll()
        forget_cache(partition)
        first = world.segments(partition.topic).segments[0]
        partition.reader.forget([first.ledger_id])
        world.backend.service.read_count = 0
        size = 3 * len(batch("v399"))
        assert await read_all(partition, size_max=size) == [(n, f"v{n}") for n in range(400)]
        gives, crosses = -(-400 // 3), 40
        assert world.backend.service.read_count <= gives + crosses, "no search"

    one_partition(scenario, snapshot_interval_entries=1000, search_span_entries=2)


def test_a_snapshot_stands_behind_what_was_accepted_before_it() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        before = [partition.append(batch(name)) for name in "ab"]
        rolling = asyncio.create_task(partition.changes.roll())
        await until(lambda: len(world.segments(partition.topic).segments) == 2)
        after = [partition.append(batch(name)) for name in "cd"]
        await rolling
        assert [await done(append) for append in before + after] == [0, 1, 2, 3]
        old, new = (writer.ledger for writer in broker.ledgers.writers)
        assert [is_internal(payload) for payload in old.entries] == [True, False, True]
        assert [is_internal(payload) for payload in new.entries] == [True, False]
        assert await read_all(partition) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]

    one_partition(scenario)


def test_closing_sends_what_gathered() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        appends = [partition.append(batch(name)) for name in "ab"]
        await partition.close(5.0)
        assert [await done(append) for append in appends] == [0, 1]

    one_partition(scenario)


def test_what_gathered_shares_the_end_of_the_leadership() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        gathered = partition.append(batch("a"))
        broker.ledgers.writers[0].error = LedgerFenced("found out just now")
        with pytest.raises(LeadershipLost):
            await done(gathered)
        assert not partition.is_open
        assert partition.usage.in_flight_bytes == 0

    one_partition(scenario)
