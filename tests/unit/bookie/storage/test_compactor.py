"""Giving log files back: space returns, and nothing that lives is lost, whatever happens."""

from __future__ import annotations

import asyncio
import errno

import pytest

from bookie.storage.core.append_log import FIRST_COPY, file_name, is_copy
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import ReadLacRequest, Status
from tests.fakes.bookie_box import (
    DELETION_MEMORY_MS,
    NOW_MS,
    BookieBox,
    add,
    fence,
    payload_of,
    read,
    settle,
)
from tests.fakes.disk import CrashDisk
from tests.unit.bookie.storage.test_storage import write_lac

FILE_BYTES = 1000
ALL = 1.1
"""A threshold below which every file is."""
LATER_MS = NOW_MS + DELETION_MEMORY_MS + 1


class Filled(BookieBox):
    """Ledger 7 is in every log file, ledger 8 too but for the last one."""

    async def fill(self, rounds: int = 12) -> None:
        for n in range(rounds):
            await self.put(8, n)
            await self.put(7, n, bytes(20))
        await self.put(7, rounds, bytes(FILE_BYTES))
        await self.put(9, 0)
        await settle()

    async def put(self, ledger: int, entry: int, padding: bytes = b"") -> None:
        payload = b"%d/%d " % (ledger, entry) + padding
        assert await self.status(add(ledger, entry, payload, lac=entry - 1)) is Status.OK

    async def check(self, ledger: int, entries: range) -> None:
        """Every entry is there, and says what it said."""
        for entry in entries:
            answer = await self.call(read(ledger, entry))
            assert answer.status is Status.OK, (ledger, entry, answer)
            assert payload_of(ledger, answer.entry).startswith(b"%d/%d " % (ledger, entry))

    async def check_again(self, ledger: int, entries: range) -> None:
        """Check now, after a crash, and with an index made from the log alone."""
        await self.check(ledger, entries)
        self.lose_power()
        self.start()
        await self.check(ledger, entries)
        self.kill()
        self.index_store.wipe()
        self.start()
        await self.check(ledger, entries)


async def filled() -> Filled:
    box = Filled(log_file_bytes_max=FILE_BYTES)
    await box.fill()
    return box


async def test_files_without_life_are_given_back() -> None:
    box = await filled()
    before = box.log_numbers
    assert len(before) > 3
    await box.delete(7)
    await box.delete(8)
    await box.put(9, 1)
    await box.reclaim(now_ms=LATER_MS)
    assert box.log_numbers == before[-1:]
    assert box.checkpoint.numbers == box.log_numbers
    assert box.metrics.dropped_file_bytes > 2 * FILE_BYTES
    assert [box.index.tally(number) for number in before[:-1]] == [None] * (len(before) - 1)
    await box.check_again(9, range(2))


async def test_nothing_that_lives_is_given_back() -> None:
    box = await filled()
    before = box.log_numbers
    await box.delete(8)
    await box.reclaim()
    await box.reclaim(threshold=0.2)
    assert box.log_numbers == before
    await box.check_again(7, range(13))


async def test_what_lives_is_copied_and_the_old_files_go() -> None:
    box = await filled()
    before = box.log_numbers
    used = box.volume.used_bytes
    await box.delete(7)
    await box.reclaim(threshold=ALL)
    assert [n for n in box.log_numbers if n in before] == before[-1:]
    assert any(map(is_copy, box.log_numbers))
    assert sorted(box.checkpoint.numbers) == box.log_numbers
    assert box.volume.used_bytes < used / 2
    assert box.metrics.rewritten_file_bytes > FILE_BYTES
    location = box.index.places.location(LedgerId(8), EntryId(0))
    assert location is not None
    assert is_copy(location.number)
    await box.check_again(8, range(12))
    await box.put(8, 12)
    await box.check_again(8, range(13))


async def test_copies_are_rewritten_like_other_files() -> None:
    box = await filled()
    for ledger in range(20, 26):
        await box.put(ledger, 0, bytes(100))
    for ledger in range(20, 26):
        await box.delete(ledger)
        await box.reclaim(threshold=ALL, now_ms=LATER_MS)
        await box.check(7, range(13))
    box.restart()
    await box.reclaim(threshold=ALL, now_ms=LATER_MS)
    assert len(set(box.log_numbers)) == len(box.checkpoint.files)
    await box.check_again(7, range(13))
    await box.check_again(8, range(12))


async def test_keys_fences_and_explicit_lacs_move_with_the_entries() -> None:
    """With the index made from the log alone afterwards: the log must hold them all."""
    box = Filled(log_file_bytes_max=FILE_BYTES)
    await box.put(5, 0)
    await box.call(write_lac(5, 3))
    await box.call(write_lac(5, 5))
    await box.call(fence(5))
    await box.call(fence(6))
    await box.fill()
    await box.delete(7)
    await box.reclaim(threshold=ALL)
    assert 1 not in box.log_numbers
    box.kill()
    box.index_store.wipe()
    box.start()
    other = b"k" * 20
    assert await box.status(add(5, 99)) is Status.FENCED
    assert await box.status(add(6, 0)) is Status.FENCED
    assert await box.status(add(9, 99, key=other)) is Status.UNAUTHORIZED
    answer = await box.call(ReadLacRequest(LedgerId(5)))
    assert bytes(answer.lac_packet)[8:16] == (5).to_bytes(8, "big")


async def test_deletions_are_copied_while_they_must_be_remembered() -> None:
    box = await filled()
    await box.call(fence(7))
    await box.delete(7)
    await box.put(9, 1, bytes(FILE_BYTES))
    await box.put(9, 2)
    await settle()
    await box.reclaim(threshold=ALL)
    assert len(list(filter(is_copy, box.log_numbers))) == len(box.log_numbers) - 1
    box.kill()
    box.index_store.wipe()
    box.start()
    assert await box.status(add(7, 99)) is Status.FENCED
    await box.reclaim(threshold=ALL, now_ms=LATER_MS)
    box.kill()
    box.index_store.wipe()
    box.start()
    assert await box.status(add(7, 99)) is Status.OK


async def test_a_newer_write_of_an_entry_beats_the_copy(monkeypatch) -> None:
    box = await filled()
    newer: list[asyncio.Future[object]] = []
    write = CrashDisk.write

    def write_and_overtake(disk: CrashDisk, *args: object) -> None:
        write(disk, *args)
        if not newer:
            newer.append(box.send(add(8, 0, b"8/0 newer")))

    monkeypatch.setattr(CrashDisk, "write", write_and_overtake)
    await box.delete(7)
    await box.reclaim(threshold=ALL)
    await newer[0]
    for again in ("now", "power", "index"):
        if again == "power":
            box.lose_power()
            box.start()
        if again == "index":
            box.index_store.corrupt = True
            box.restart()
        assert payload_of(8, (await box.call(read(8, 0))).entry) == b"8/0 newer"


async def test_a_ledger_deleted_meanwhile_does_not_come_back(monkeypatch) -> None:
    box = await filled()
    move = box.index.move
    moves: list[int] = []

    def move_behind_deletion(places, sources):
        box.index.clear_entries(LedgerId(8), 100)
        moves.append(move(places, sources))

    monkeypatch.setattr(box.index, "move", move_behind_deletion)
    await box.delete(7)
    await box.reclaim(threshold=ALL)
    assert sum(moves) == 0
    assert box.index.places.entry_ids(LedgerId(8)) == []


async def test_reads_under_way_follow_the_entry_to_its_copy(monkeypatch) -> None:
    box = await filled()
    await box.delete(7)
    location = box.index.places.location
    old = location(LedgerId(8), EntryId(3))
    await box.reclaim(threshold=ALL)
    stale = iter([old])

    def look_too_early(ledger_id, entry_id):
        return next(stale, None) or location(ledger_id, entry_id)

    monkeypatch.setattr(box.index.places, "location", look_too_early)
    await box.check(8, range(3, 4))
    assert box.metrics.unreadable_entries == 0


async def test_4525_a_damaged_file_stays_and_the_others_go(caplog) -> None:
    box = await filled()
    before = box.log_numbers
    location = box.index.places.location(LedgerId(8), EntryId(4))
    assert location is not None
    box.volume.files[file_name(location.number)].rot(location.position + 40, 1)
    await box.delete(7)
    for _ in range(2):
        await box.reclaim(threshold=ALL)
    assert "reclaim.unreadable_file" in caplog.text
    assert box.metrics.unreadable_files == 1
    left = [n for n in box.log_numbers if n in before]
    assert left == [location.number, before[-1]]
    await box.check(8, range(4))
    await box.check(8, range(5, 12))
    assert await box.status(read(8, 4)) is Status.IO_ERROR
    await box.delete(8)
    await box.reclaim(now_ms=LATER_MS)
    assert box.log_numbers == before[-1:]


async def test_a_file_with_damage_that_nobody_can_name_is_never_given_back() -> None:
    box = await filled()
    box.kill()
    box.index_store.wipe()
    box.volume.files[file_name(2)].rot(200, 1)
    box.start()
    assert [damage.number for damage in box.checkpoint.damage] == [2]
    for ledger in (7, 8, 9):
        await box.delete(ledger)
    await box.reclaim(threshold=ALL, now_ms=LATER_MS)
    assert 2 in box.log_numbers
    assert 1 not in box.log_numbers


async def test_a_copy_that_was_not_finished_is_thrown_away() -> None:
    box = await filled()
    box.volume.create(file_name(FIRST_COPY)).write(0, b"half a copy")
    box.restart()
    assert FIRST_COPY not in box.log_numbers
    await box.check(8, range(12))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_a_copy_that_cannot_be_written_changes_nothing(monkeypatch, error: int) -> None:
    box = await filled()
    before = box.log_numbers

    def fail(disk: CrashDisk, name: str, position: int, buffers: object) -> None:
        disk.volume.create(name)
        raise OSError(error, "no")

    monkeypatch.setattr(CrashDisk, "write", fail)
    await box.delete(7)
    await box.reclaim(threshold=ALL)
    assert box.log_numbers == before
    monkeypatch.undo()
    await box.reclaim(threshold=ALL)
    assert box.log_numbers != before
    await box.check_again(8, range(12))


async def test_without_room_for_the_copy_files_are_only_given_back() -> None:
    box = await filled()
    await box.delete(7)
    box.volume.capacity_bytes = box.volume.used_bytes + 800
    before = box.log_numbers
    await box.reclaim(threshold=ALL)
    assert box.log_numbers == before
    await box.delete(8)
    await box.reclaim(threshold=0.0, now_ms=LATER_MS)
    assert box.log_numbers == before[-1:]


async def test_a_copy_leaves_the_reserve_alone() -> None:
    """Copies are not entries: what is kept back for fences and the index is not theirs."""
    box = await filled()
    await box.delete(7)
    box.compactor._limits = box.compactor._limits._replace(free_bytes_min=box.volume.free_bytes)
    before = box.log_numbers
    await box.reclaim(threshold=ALL)
    assert box.log_numbers == before
    box.compactor._limits = box.compactor._limits._replace(free_bytes_min=0)
    await box.reclaim(threshold=ALL)
    assert box.log_numbers != before


async def test_the_copy_is_durable_before_the_old_files_go(monkeypatch) -> None:
    """1534, 1536: whatever is lost at the moment of removal, the copy and its index are not."""
    box = await filled()
    remove = CrashDisk.remove
    lost = False

    def lose_power_first(disk: CrashDisk, name: str) -> None:
        nonlocal lost
        if not lost:
            lost = True
            box.volume.power_lost()
            box.index_store.power_lost()
        remove(disk, name)

    monkeypatch.setattr(CrashDisk, "remove", lose_power_first)
    await box.delete(7)
    await box.reclaim(threshold=ALL)
    assert lost
    box.kill()
    box.start()
    await box.check_again(8, range(12))


async def test_a_crash_between_the_lists_leaves_both_and_the_next_run_tidies_up(
    monkeypatch,
) -> None:
    box = await filled()
    before = box.log_numbers
    await box.delete(7)
    with monkeypatch.context() as patch:
        patch.setattr(box.index, "move", lambda places, sources: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await box.reclaim(threshold=ALL)
    assert box.failures
    box.lose_power()
    box.start()
    assert set(before) < set(box.log_numbers)
    await box.check(8, range(12))
    await box.reclaim(threshold=ALL)
    assert [n for n in box.log_numbers if n in before] == before[-1:]
    await box.check_again(8, range(12))


async def test_the_pace_is_limited(monkeypatch) -> None:
    box = await filled()
    await box.delete(7)
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(delay: float) -> None:
        slept.append(delay)
        await sleep(0)

    monkeypatch.setattr("bookie.storage.compacted_log._STEP_BYTES", 300)
    monkeypatch.setattr(asyncio, "sleep", note)
    box.compactor._limits = box.compactor._limits._replace(reclaim_bytes_per_s=10_000)
    await box.reclaim(threshold=ALL)
    assert len(slept) > 5
    assert 0.2 < sum(slept) < 2


async def test_adds_go_on_while_files_are_rewritten(monkeypatch) -> None:
    monkeypatch.setattr("bookie.storage.compacted_log._STEP_BYTES", 200)
    box = await filled()
    await box.delete(7)
    rewriting = asyncio.ensure_future(box.reclaim(threshold=ALL))
    n = 12
    while not rewriting.done():
        await box.put(8, n)
        n += 1
    assert n > 20
    await box.check_again(8, range(n))


async def test_the_newest_file_stays_until_the_next_one_is_made() -> None:
    """The next file is made behind it, by a group that may come much later."""
    box = Filled(log_file_bytes_max=FILE_BYTES)
    adding = box.send(add(7, 0, bytes(FILE_BYTES)))
    deleted: list[Status] = []
    box.storage.delete(LedgerId(7), NOW_MS, deleted.append)
    assert (await adding).status is Status.OK
    await settle()
    assert deleted == [Status.OK]
    box.kill()
    box.volume.create(file_name(2)).write(0, b"Quire")
    box.start()
    assert box.checkpoint.start.number == 2
    await box.reclaim(now_ms=LATER_MS)
    assert box.checkpoint.numbers == [1]
    await box.put(8, 0)
    await settle()
    await box.reclaim(now_ms=LATER_MS)
    assert box.log_numbers == [2]
    await box.check_again(8, range(1))
