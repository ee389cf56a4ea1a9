"""Reading ahead of those who go through a ledger in order."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import LogReadFailed, OffsetOutOfRange
from broker.partition.partition import Partition
from broker.partition.read_ahead import LedgerAhead, ReadAhead
from client.errors import NotEnoughBookies, ReadFailed
from client.ids import EntryId, LedgerId, Offset
from client.wire.bookkeeper.entry import Entry
from tests.fakes.brokers import Broker, World, batch, done, forget_cache, settle
from tests.fakes.one_partition import fetch, one_partition

SIZE = 10


class Ledger:
    """A reader of a ledger of equal entries that notes what it is asked for."""

    ledger_id = LedgerId(1)

    def __init__(self, count: int, *, heavy_from: int = 1 << 30) -> None:
        self.last_entry = EntryId(count - 1)
        self.length = count * SIZE
        self.heavy_from = heavy_from
        self.asked: list[tuple[int, int]] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, first: EntryId, last: EntryId) -> list[Entry]:
        self.asked.append((first, last))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [
            Entry(self.ledger_id, EntryId(at), EntryId(-1), 0, memoryview(bytes(self.weight(at))))
            for at in range(first, last + 1)
        ]

    async def read_some(self, first: EntryId, last: EntryId) -> list[Entry]:
        return await self.read(first, last)

    def weight(self, entry_id: int) -> int:
        return SIZE if entry_id < self.heavy_from else 1000 * SIZE


async def take(ahead: LedgerAhead, first: int, count: int = 5) -> list[int]:
    """Read as a fetch does, and stop behind what was read."""
    entries = await ahead.read(EntryId(first), EntryId(first + count - 1))
    ahead.stopped(EntryId(first), EntryId(first + count), count)
    return [entry.entry_id for entry in entries]


async def going_on(shared: ReadAhead, ledger: Ledger) -> LedgerAhead:
    """Return what has been read twice in order, so that entries 10..14 are read ahead."""
    ahead = shared.of(ledger)
    assert await take(ahead, 0) == list(range(5))
    await asyncio.sleep(0)
    assert ledger.asked == [(0, 4)], "one read is no order"
    assert await take(ahead, 5) == list(range(5, 10))
    await settle()
    return ahead


async def test_who_goes_on_finds_the_next_entries_read() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100)
    ahead = await going_on(shared, ledger)
    assert (ledger.asked[-1], shared.size) == ((10, 14), 50)
    ledger.asked.clear()
    assert await take(ahead, 10) == list(range(10, 15))
    await settle()
    assert ledger.asked == [(15, 19)], "only what comes after it"
    assert (shared.size, shared.used_bytes, shared.dropped_bytes) == (50, 50, 0)
    ahead.close()
    assert (shared.size, shared.dropped_bytes) == (0, 50)


async def test_a_read_of_another_length_gets_what_it_asks_for() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100)
    ahead = await going_on(shared, ledger)
    assert await take(ahead, 10, 3) == [10, 11, 12]
    ahead = await going_on(shared, Ledger(100))
    assert await take(ahead, 10, 8) == list(range(10, 18))


async def test_a_read_that_comes_early_waits_for_the_same_entries() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100)
    ahead = shared.of(ledger)
    await take(ahead, 0)
    await take(ahead, 5)
    ledger.gate.clear()
    reading = asyncio.create_task(take(ahead, 10))
    await settle()
    assert ledger.asked[2:] == [(10, 14)]
    ledger.gate.set()
    assert await reading == list(range(10, 15))


async def test_what_was_read_and_not_wanted_yet_is_not_read_again() -> None:
    shared, ledger = ReadAhead(1000, 60), Ledger(100)
    ahead = await going_on(shared, ledger)
    entries = await ahead.read(EntryId(10), EntryId(14))
    ledger.asked.clear()
    ahead.stopped(EntryId(10), EntryId(12), 5, entries[2:])
    await settle()
    assert (ledger.asked, shared.size) == ([(15, 17)], 60)
    entries = await ahead.read(EntryId(12), EntryId(17))
    assert [entry.entry_id for entry in entries] == list(range(12, 18))
    ahead.stopped(EntryId(12), EntryId(14), 1, entries[2:])
    await settle()
    assert (ledger.asked, shared.size) == ([(15, 17)], 40), "more than half was there"
    assert [entry.entry_id for entry in await ahead.read(EntryId(14), EntryId(18))] == [
        *range(14, 19)
    ]
    assert ledger.asked == [(15, 17), (18, 18)]


async def test_each_time_a_reader_goes_on_more_is_read_until_it_has_enough() -> None:
    shared, ledger = ReadAhead(1000, 400), Ledger(200)
    ahead = await going_on(shared, ledger)
    for first in range(10, 80, 5):
        assert await take(ahead, first) == list(range(first, first + 5))
        await settle()
        assert shared.size <= 400
    assert ledger.asked[2:] == [(10, 14), (15, 24), (25, 44), (45, 64), (65, 84), (85, 104)]
    assert shared.used_bytes == 700


async def test_a_part_of_a_run_leaves_the_rest_of_it() -> None:
    shared, ledger = ReadAhead(1000, 100), Ledger(100)
    ahead = shared.of(ledger)
    await take(ahead, 0, 10)
    await take(ahead, 10, 10)
    await settle()
    assert (ledger.asked[-1], shared.size) == ((20, 29), 100)
    for first, count in ((20, 3), (23, 1), (24, 8)):
        assert [
            entry.entry_id for entry in await ahead.read(EntryId(first), EntryId(first + count - 1))
        ] == [*range(first, first + count)]
    assert ledger.asked[3:] == [(30, 31)]
    assert (shared.size, shared.used_bytes) == (0, 100)


async def test_what_lies_between_runs_is_read_alone() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100)
    ahead = await going_on(shared, ledger)
    ahead.stopped(EntryId(5), EntryId(18), 5)
    await settle()
    ledger.asked.clear()
    found = await ahead.read(EntryId(8), EntryId(24))
    assert [entry.entry_id for entry in found] == list(range(8, 25))
    assert (ledger.asked, shared.size) == ([(8, 9), (15, 17), (23, 24)], 0)
    ahead.stopped(EntryId(5), EntryId(30), 5)
    ahead.stopped(EntryId(5), EntryId(28), 5)
    await settle()
    assert (ledger.asked[3:], shared.size) == ([(30, 34), (28, 29)], 70), "each entry once"


async def test_those_who_go_the_same_way_read_each_entry_once() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100)
    ahead = await going_on(shared, ledger)
    assert await take(ahead, 5) == list(range(5, 10)), "a second reader, which follows"
    ledger.asked.clear()
    ledger.gate.clear()
    readers = [asyncio.create_task(take(ahead, 10)) for _ in range(3)]
    await settle()
    readers[0].cancel()
    ledger.gate.set()
    for reader in readers[1:]:
        assert await reader == list(range(10, 15))
    assert await take(ahead, 10) == list(range(10, 15))
    await settle()
    assert ledger.asked == [(15, 19)], "only what comes after it, and once"
    assert shared.size == 100, "what was taken stays for others"
    ahead.close()
    assert (shared.size, shared.dropped_bytes, shared.kept) == (0, 50, {})


async def test_who_goes_alone_leaves_nothing_behind() -> None:
    shared, ledger = ReadAhead(1000, 50, patience_s=0.05), Ledger(100)
    ahead = await going_on(shared, ledger)
    await take(ahead, 5)
    await take(ahead, 10)
    await settle()
    assert shared.size == 100
    await asyncio.sleep(0.1)
    assert (shared.size, shared.dropped_bytes) == (0, 50), "nobody follows any more"
    ahead.stopped(EntryId(10), EntryId(20), 5)
    await settle()
    assert await take(ahead, 20) == list(range(20, 25))
    await settle()
    assert (shared.size, shared.kept) == (50, {})


async def test_what_is_kept_for_others_makes_room_for_what_nobody_has() -> None:
    shared, ledger = ReadAhead(100, 50), Ledger(100)
    ahead = await going_on(shared, ledger)
    await take(ahead, 5)
    for first in range(10, 50, 5):
        assert await take(ahead, first) == list(range(first, first + 5))
        await settle()
        assert shared.size == 100, "the last one, and the one ahead"
    assert ledger.asked.count((20, 24)) == 1
    assert shared.dropped_bytes == 0


async def test_a_kept_run_that_is_pushed_out_still_arrives() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100)
    ahead = await going_on(shared, ledger)
    await take(ahead, 5)
    ledger.gate.clear()
    ahead.stopped(EntryId(10), EntryId(50), 5)
    reading = asyncio.create_task(take(ahead, 50))
    await settle()
    ahead.close()
    ledger.gate.set()
    assert await reading == list(range(50, 55))
    assert shared.size == 0


async def test_a_consumer_that_went_away_ends_the_reading_for_it() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100)
    ahead = shared.of(ledger)
    await take(ahead, 0)
    before = asyncio.all_tasks()
    ledger.gate.clear()
    ahead.stopped(EntryId(5), EntryId(10), 5)
    await settle()
    reading = asyncio.create_task(take(ahead, 10))
    await settle()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert (asyncio.all_tasks(), shared.size) == (before, 0)


@pytest.mark.parametrize("shared", [ReadAhead(0), ReadAhead(49), ReadAhead(1000, 9)])
async def test_nothing_is_read_beyond_the_bounds(shared: ReadAhead) -> None:
    ledger = Ledger(100)
    await going_on(shared, ledger)
    assert (ledger.asked, shared.size) == ([(0, 4), (5, 9)], 0)


async def test_a_reader_gets_no_more_than_its_share() -> None:
    shared, ledger = ReadAhead(1000, 30), Ledger(100)
    ahead = await going_on(shared, ledger)
    assert (ledger.asked[-1], shared.size) == ((10, 12), 30)
    assert await take(ahead, 10) == list(range(10, 15))


async def test_all_ledgers_share_the_bound() -> None:
    shared, other = ReadAhead(80, 50), Ledger(100)
    ahead = await going_on(shared, Ledger(100))
    await going_on(shared, other)
    assert (other.asked, shared.size) == ([(0, 4), (5, 9)], 50)
    ahead.close()
    await going_on(shared, Ledger(100))
    assert shared.size == 50


async def test_entries_that_are_larger_than_others_do_not_stay() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100, heavy_from=12)
    ahead = await going_on(shared, ledger)
    assert (shared.size, ledger.asked[-1]) == (0, (10, 14))
    assert await take(ahead, 10) == list(range(10, 15))


async def test_what_nobody_comes_for_is_dropped() -> None:
    shared, ledger = ReadAhead(1000, 50, patience_s=0.01), Ledger(100)
    await going_on(shared, ledger)
    assert shared.size == 50
    await asyncio.sleep(0.03)
    assert (shared.size, shared.dropped_bytes) == (0, 50)


async def test_a_failure_is_forgotten_and_the_reader_gets_his_own() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(100)
    ahead = shared.of(ledger)
    await take(ahead, 0)
    ledger.error = ReadFailed("ahead")
    ahead.stopped(EntryId(5), EntryId(10), 5)
    early = asyncio.create_task(take(ahead, 10))
    with pytest.raises(ReadFailed, match="ahead"):
        await early
    assert (ledger.asked[1:], shared.size) == ([(10, 14), (10, 14)], 0)
    ahead.stopped(EntryId(5), EntryId(10), 5)
    await settle()
    assert shared.size == 0
    ledger.error = None
    assert await take(ahead, 10) == list(range(10, 15))


async def test_nothing_is_read_beyond_the_end_or_after_the_close() -> None:
    shared, ledger = ReadAhead(1000, 50), Ledger(12)
    ahead = await going_on(shared, ledger)
    assert ledger.asked[-1] == (10, 11)
    assert await take(ahead, 10, 2) == [10, 11]
    assert len(ledger.asked) == 3
    ahead.close()
    await take(ahead, 0)
    await take(ahead, 5)
    await settle()
    assert shared.size == 0


async def write(partition: Partition, count: int) -> None:
    for number in range(count):
        await done(partition.append(batch(f"v{number}")))
    forget_cache(partition)


async def read_some(partition: Partition, offset: int, count: int) -> int:
    """Fetch one batch at a time; return where it stopped."""
    for at in range(offset, offset + count):
        assert await fetch(partition, at, 1)
    await settle()
    return offset + count


def test_a_partition_that_is_not_led_any_more_holds_nothing() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await write(partition, 20)
        await read_some(partition, 0, 5)
        ahead = broker.services.ahead
        assert ahead.size > 0 < ahead.used_bytes
        partition.resign("test")
        assert ahead.size == 0

    one_partition(scenario, read_entries_max=1, shared_entry_batches_max=1)


def test_what_was_trimmed_is_not_served_from_what_was_read_ahead() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await write(partition, 20)
        await partition.changes.roll()
        await done(partition.append(batch("new")))
        forget_cache(partition)
        await read_some(partition, 0, 5)
        ahead = broker.services.ahead
        assert ahead.size > 0
        assert await partition.changes.delete_records(Offset(20)) == 20
        assert ahead.size == 0
        with pytest.raises(OffsetOutOfRange):
            await fetch(partition, 5, 1)

    one_partition(scenario, read_entries_max=1, shared_entry_batches_max=1)


def test_a_fetch_that_takes_a_part_of_what_was_read_leaves_the_rest_for_the_next() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await write(partition, 20)
        ahead = broker.services.ahead
        size = 3 * len(batch("v0")) // 2
        for at in range(5):
            assert await fetch(partition, at, size)
        await settle()
        used = ahead.used_bytes
        before = world.backend.service.read_count
        for at in range(5, 15):
            assert await fetch(partition, at, size)
            await settle()
        assert world.backend.service.read_count - before <= 11, "each entry once, and one ahead"
        assert ahead.used_bytes > used

    one_partition(scenario, read_entries_max=4, shared_entry_batches_max=1)


def test_unreadable_entries_give_the_same_error() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await write(partition, 20)
        broker.services.ahead.reader_bytes_max = 3 * len(batch("v0")) // 2
        at = await read_some(partition, 0, 5)
        for _ in range(2):
            world.backend.service.fail_next("read", NotEnoughBookies("gone"))
        assert await fetch(partition, at, 1), "this one was read before"
        await settle()
        with pytest.raises(LogReadFailed, match="gone"):
            await fetch(partition, at + 1, 1)

    one_partition(scenario, read_entries_max=1, shared_entry_batches_max=1)
