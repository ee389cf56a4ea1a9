"""The index finds no room: nothing is lost or denied, and it goes on when there is some."""

from __future__ import annotations

import pytest

from bookie.errors import CorruptIndex, DiskFull
from bookie.storage.core.append_log import BEGINNING
from client.ids import LedgerId
from client.wire.bookkeeper.messages import AddRequest, Status
from tests.fakes.bookie_box import (
    LIMITS,
    NOW_MS,
    BookieBox,
    add,
    fence,
    payload_of,
    read,
    settle,
)
from tests.simulation.machine.index import LevelStore

EVERY_GROUP = LIMITS._replace(checkpoint=LIMITS.checkpoint._replace(checkpoint_records=1))
LATER = EVERY_GROUP._replace(disk_full_retry_s=3600.0)


def level_of(box: BookieBox) -> LevelStore:
    assert box.level is not None
    return box.level


def set_full(box: BookieBox, is_full: bool = True) -> None:
    level_of(box).volume.is_full = is_full


async def check(box: BookieBox, entries: range, ledger: int = 7) -> None:
    for n in entries:
        found = await box.call(read(ledger, n))
        assert found.status is Status.OK, n
        assert payload_of(ledger, found.entry) == b"%d" % n


async def fill(box: BookieBox, entries: range, ledger: int = 7) -> None:
    for n in entries:
        assert await box.status(add(ledger, n, b"%d" % n)) is Status.OK
        await settle()


async def test_what_is_durable_stays_readable_and_is_indexed_when_there_is_room() -> None:
    box = BookieBox(limits=EVERY_GROUP, level_bytes=500)
    await fill(box, range(10))
    before = box.checkpoint
    set_full(box)
    assert await box.status(add(7, 10, b"10")) is Status.OK, "the log had room"
    await settle()
    assert box.storage.indexer.waiting_entries == 1
    await check(box, range(11))
    assert box.checkpoint == before, "a start would believe it"
    set_full(box, False)
    await settle()
    assert box.storage.indexer.waiting_entries == 0
    assert not box.failures
    assert box.checkpoint.start == box.index.end()
    await fill(box, range(11, 20))
    box.lose_power()
    box.start()
    await check(box, range(20))


async def test_while_the_index_has_no_room_nothing_is_added() -> None:
    """It could not be put there, and would have to stay in memory."""
    box = BookieBox(limits=LATER, level_bytes=500)
    await fill(box, range(3))
    set_full(box)
    assert await box.status(add(7, 3)) is Status.OK
    await settle()
    told: list[bool] = []
    box.storage.full_disk.on_full = lambda: told.append(True)
    for request in (add(7, 4), add(7, 4, recovery=True), add(7, 4, high_priority=True)):
        assert await box.status(request) is Status.READ_ONLY
    assert box.storage.full_disk.ran_full, "who watches the disk's space is to know"
    assert await box.status(fence(7)) is Status.OK
    set_full(box, False)
    box.storage.indexer._start()
    await settle()
    assert await box.status(add(7, 4, recovery=True)) is Status.OK


async def test_no_later_batch_and_no_checkpoint_passes_one_that_is_not_in_the_index() -> None:
    box = BookieBox(limits=LATER, level_bytes=500)
    await fill(box, range(5))
    before = box.checkpoint
    set_full(box)
    assert await box.status(add(7, 5, b"5")) is Status.OK
    await settle()
    set_full(box, False)  # what comes behind would find room
    with pytest.raises(DiskFull):
        await box.storage.indexer.give_back([99])
    assert await box.status(fence(7)) is Status.OK
    await settle()
    assert box.checkpoint == before
    box.lose_power()
    box.start()
    await check(box, range(6))


async def test_what_came_meanwhile_is_put_in_with_it_in_order() -> None:
    box = BookieBox(limits=LATER, level_bytes=500)
    await fill(box, range(2))
    set_full(box)
    first = AddRequest(LedgerId(7), *_as_entry(2, b"2"))
    assert await box.status(first) is Status.OK
    await settle()
    assert await box.status(fence(7)) is Status.OK
    assert await box.status(fence(8)) is Status.NO_ENTRY
    await settle()
    set_full(box, False)
    box.storage.indexer._start()
    await settle()
    record = box.index.ledger(LedgerId(7))
    assert record is not None
    assert record.fenced
    assert box.index.ledger(LedgerId(8)) is not None
    assert box.checkpoint.start == box.index.end()


def _as_entry(entry: int, payload: bytes) -> tuple:
    request = add(7, entry, payload)
    return request.entry_id, request.master_key, request.entry


async def test_a_table_that_failed_before_is_met_by_the_next_batch() -> None:
    """LevelDB says so late, and refuses all until it is opened anew."""
    box = BookieBox(limits=EVERY_GROUP, level_bytes=200)
    level = level_of(box)
    count = 0
    while not level.volume.is_full:
        await fill(box, range(count, count + 1))
        count += 1
        if len(level.needed_logs()) > 1:  # of the older one a table is to be made
            set_full(box)
    assert await box.status(add(7, count, b"%d" % count)) is Status.OK
    await settle()
    assert not box.failures
    await check(box, range(count + 1))
    set_full(box, False)
    await settle()
    assert box.storage.indexer.waiting_entries == 0
    box.lose_power()
    box.start()
    await check(box, range(count + 1))


async def test_sockets_are_read_though_what_is_held_is_above_the_limit() -> None:
    """Reads and fences come over the same connections as adds."""
    box = BookieBox(limits=LATER, level_bytes=500, pending_bytes_max=100)
    await fill(box, range(1))
    set_full(box)
    answers = [box.send(add(7, n)) for n in range(1, 20)]
    assert box.backlog.is_over
    for answer in answers:
        assert (await answer).status is Status.OK
    await settle()
    assert not box.backlog.is_over
    set_full(box, False)
    box.storage.indexer._start()
    await settle()
    assert box.storage.indexer.waiting_entries == 0
    assert (box.backlog.bytes, box.storage.pending.bytes) == (0, 0)
    assert await box.status(add(7, 20)) is Status.OK
    await settle()
    assert box.backlog.bytes == 0


async def test_who_deletes_is_told_that_it_is_not_done_and_it_is_done_later() -> None:
    """Garbage collection goes on with other directories."""
    box = BookieBox(limits=LATER, level_bytes=500)
    await fill(box, range(3))
    await fill(box, range(3), ledger=8)
    await fill(box, range(3), ledger=9)
    deleting = box.delete(7)
    set_full(box)
    assert await deleting is Status.IO_ERROR
    assert await box.delete(8) is Status.IO_ERROR
    await check(box, range(3), ledger=8)  # it was not begun
    await box.storage.forget_deletions(NOW_MS)
    set_full(box, False)
    box.storage.indexer._start()
    await settle()
    assert await box.status(read(7, 0)) is Status.NO_LEDGER
    assert await box.delete(8) is Status.OK
    await check(box, range(3), ledger=9)


async def test_a_deletion_goes_on_where_it_found_no_room() -> None:
    box = BookieBox(limits=EVERY_GROUP._replace(disk_full_retry_s=0.001), level_bytes=500)
    await fill(box, range(3))
    clear = box.index.clear_entries
    failures = [DiskFull("no room")]

    def fail_once(ledger_id: LedgerId, count_max: int) -> bool:
        if failures:
            raise failures.pop()
        return clear(ledger_id, count_max)

    box.index.clear_entries = fail_once  # type: ignore[method-assign]
    assert await box.delete(7) is Status.IO_ERROR
    while LedgerId(7) in box.storage.ledgers.ids():
        await settle()
    assert box.index.places.entry_ids(LedgerId(7)) == []
    assert not box.failures


async def test_a_bookie_that_stops_leaves_to_the_next_start_what_found_no_room() -> None:
    box = BookieBox(limits=LATER, level_bytes=500)
    await fill(box, range(3))
    set_full(box)
    assert await box.status(add(7, 3, b"3")) is Status.OK
    await settle()
    await box.storage.close()
    set_full(box, False)
    box.restart()
    await check(box, range(4))


async def test_a_start_on_a_full_disk_makes_no_index_anew() -> None:
    box = BookieBox(limits=EVERY_GROUP, level_bytes=500)
    await fill(box, range(10))
    box.kill()
    set_full(box)
    for _ in range(3):
        with pytest.raises(DiskFull):
            box.start()
    assert box.checkpoint.start != BEGINNING
    set_full(box, False)
    box.start()
    await check(box, range(10))


@pytest.mark.parametrize("call", range(40))
async def test_any_call_of_the_index_may_fail(call: int) -> None:
    """The bookie ends, or goes on; what was acknowledged is never denied, here or later."""
    box = BookieBox(limits=EVERY_GROUP, level_bytes=200)
    level = level_of(box)
    await fill(box, range(4))
    level.fails_in = call
    acknowledged = []
    for n in range(4, 12):
        if await box.status(add(7, n, b"%d" % n)) is Status.OK:
            acknowledged.append(n)
        await settle()
        for known in acknowledged:
            found = await box.call(read(7, known))
            assert found.status in (Status.OK, Status.IO_ERROR)
    level.fails_in = -1
    assert all(isinstance(error, CorruptIndex) for error in box.failures)
    box.lose_power()
    box.start()
    await check(box, range(4))
    for n in acknowledged:
        await check(box, range(n, n + 1))


async def test_a_copy_that_is_listed_is_put_into_use_before_another_one_is_made() -> None:
    """Of two copies of the same files, a later rebuild would read one behind what came after."""
    box = BookieBox(limits=EVERY_GROUP, level_bytes=1 << 20, log_file_bytes_max=600)
    await fill(box, range(12))
    await fill(box, range(12), ledger=8)
    assert await box.delete(8) is Status.OK
    await fill(box, range(12, 14))
    move = box.index.move
    failures = [DiskFull("no room")]

    def fail_once(*args: object) -> int:
        if failures:
            raise failures.pop()
        return move(*args)  # type: ignore[arg-type]

    box.index.move = fail_once  # type: ignore[method-assign]
    await box.reclaim(1.1)
    assert not failures
    listed = [n for n in box.checkpoint.numbers if n > 1 << 30]
    assert len(listed) == 1
    await box.reclaim(0.0)
    numbers = box.checkpoint.numbers
    assert numbers.index(listed[0]) == 0, "its sources are gone"
    assert not box.failures
    await check(box, range(14))
    box.lose_power()
    level_of(box).corrupt = True
    box.start()
    await check(box, range(14))
