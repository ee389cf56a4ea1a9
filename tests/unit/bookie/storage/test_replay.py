"""Starting again: what a crash leaves is found, a torn end is cut, loss is never hidden."""

from __future__ import annotations

import logging

import pytest

from bookie.errors import CorruptIndex, LogIncomplete
from bookie.storage.core.append_log import FILE_HEADER_BYTES, file_name
from bookie.storage.index.index import Index
from bookie.storage.index.indexer import Damage
from bookie.storage.replay import init_log, is_unused, replay
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import BookieBox, add, fence, payload_of, read, settle
from tests.fakes.disk import CrashDisk
from tests.fakes.key_values import MemoryKeyValues

FIRST = file_name(1)


async def filled(count: int = 5, **options: int) -> BookieBox:
    """A bookie with `count` entries in ledger 7, one group each, in log order."""
    box = BookieBox(**options)
    for n in range(count):
        assert await box.status(add(7, n, b"entry %d" % n)) is Status.OK
    await settle()
    return box


async def entries(box: BookieBox, count: int) -> list[bytes | Status]:
    """Read entries 0.. of ledger 7: payload, or the status of a refusal."""
    found: list[bytes | Status] = []
    for n in range(count):
        answer = await box.call(read(7, n))
        ok = answer.status is Status.OK
        found.append(payload_of(7, answer.entry) if ok else answer.status)
    return found


def expected(count: int) -> list[bytes]:
    return [b"entry %d" % n for n in range(count)]


def flip(box: BookieBox, position: int, name: str = FIRST) -> None:
    """Damage one byte, in the cache and on the device."""
    file = box.volume.files[name]
    for content in (file.cached, file.durable):
        if position < len(content):
            content[position] ^= 0x01


def position_of(box: BookieBox, entry: int) -> int:
    location = box.index.places.location(LedgerId(7), EntryId(entry))
    assert location is not None
    return location.position


async def test_an_unused_directory_is_prepared_once() -> None:
    box = BookieBox()
    assert is_unused(box.disk)
    first = box.checkpoint
    init_log(box.disk, box.rng)
    assert box.checkpoint == first
    await box.call(add(7, 0))
    assert not is_unused(box.disk)


async def test_no_checkpoint_is_a_refusal() -> None:
    box = await filled()
    box.kill()
    del box.volume.files["CHECKPOINT"]
    with pytest.raises(LogIncomplete, match="CHECKPOINT"):
        box.start()


@pytest.mark.parametrize("crash", ["kill", "lose_power"])
async def test_everything_acknowledged_is_there_after_a_crash(crash: str) -> None:
    box = await filled()
    await box.call(fence(8))
    getattr(box, crash)()
    box.start()
    assert await entries(box, 5) == expected(5)
    assert await box.status(add(8, 0)) is Status.FENCED
    assert await box.status(read(7, 5)) is Status.NO_ENTRY


async def test_replay_starts_at_the_checkpoint() -> None:
    box = await filled()
    await box.storage.close()
    start = box.checkpoint.start.position
    flip(box, FILE_HEADER_BYTES + 5)  # before the checkpoint: not looked at
    box.restart()
    assert box.checkpoint.start.position == start
    assert box.checkpoint.damage == ()
    found = await entries(box, 2)
    assert found == expected(2)  # the flipped byte was in the ledger's key record


async def test_an_index_that_lost_its_tail_is_completed() -> None:
    box = await filled()
    box.kill()
    box.index_store.batches.clear()
    box.index_store.power_lost()
    box.start()
    assert await entries(box, 5) == expected(5)


async def test_an_index_older_than_the_checkpoint_is_rebuilt(caplog) -> None:
    box = await filled()
    await box.call(fence(7))
    await box.storage.close()
    box.kill()
    box.index_store.wipe()
    box.start()
    assert "index.rebuild" in caplog.text
    assert await entries(box, 5) == expected(5)
    assert await box.status(add(7, 5)) is Status.FENCED


async def test_an_index_that_cannot_be_opened_is_rebuilt() -> None:
    box = await filled(log_file_bytes_max=300)
    await box.storage.close()
    box.kill()
    box.index_store.corrupt = True
    box.start()
    assert await entries(box, 5) == expected(5)


async def test_an_index_that_turns_out_to_be_damaged_is_rebuilt(monkeypatch) -> None:
    box = await filled(log_file_bytes_max=300)
    await box.storage.close()
    box.kill()
    ledgers = Index.ledgers
    broken = [CorruptIndex("a block of it")]

    def read_once(self):
        if broken:
            raise broken.pop()
        return ledgers(self)

    monkeypatch.setattr(Index, "ledgers", read_once)
    box.start()
    assert not broken
    assert await entries(box, 5) == expected(5)


async def test_a_rebuild_that_is_cut_short_begins_again(monkeypatch) -> None:
    box = await filled(log_file_bytes_max=300)
    await box.storage.close()
    box.kill()
    end = box.checkpoint.start
    box.index_store.corrupt = True
    with monkeypatch.context() as patch:
        patch.setattr(CrashDisk, "uncache", lambda self, name: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            box.start()
    # The index may know the end of the log by now, and yet not all that is before it.
    Index(MemoryKeyValues(box.index_store, wipe=True)).write([], [], end)
    box.start()
    assert await entries(box, 5) == expected(5)


@pytest.mark.parametrize("kept", [1, 31, 40, 70])
async def test_a_torn_end_is_cut_off(kept: int, caplog) -> None:
    box = await filled()
    end = len(box.volume.files[FIRST].cached)
    box.disk.hold = True
    box.send(add(7, 5, bytes(100)))
    await settle()
    box.disk.write_without_sync()
    box.kill()
    file = box.volume.files[FIRST]
    file.truncate(end + kept)
    box.start()
    assert await entries(box, 6) == [*expected(5), Status.NO_ENTRY]
    assert len(box.volume.files[FIRST].cached) == end
    assert "log.torn_end" in caplog.text
    assert await box.status(add(7, 5, b"entry 5")) is Status.OK
    box.restart()
    assert await entries(box, 6) == expected(6)


async def test_what_a_start_has_shown_does_not_vanish_later() -> None:
    """An unsynced entry that survived kill -9 is durable once the bookie serves again."""
    box = await filled(1)
    box.disk.hold = True
    box.send(add(7, 1, b"entry 1"))
    box.send(fence(7))
    await settle()
    box.disk.write_without_sync()
    box.restart()
    assert await entries(box, 2) == expected(2)
    assert await box.status(fence(7)) is Status.OK
    box.lose_power()
    box.start()
    assert await entries(box, 2) == expected(2)
    assert await box.status(add(7, 2)) is Status.FENCED


async def test_a_start_that_loses_power_does_not_take_its_own_haste_for_damage(
    monkeypatch,
) -> None:
    """The index must not learn of bytes that could still vanish."""
    monkeypatch.setattr("bookie.storage.record_replay._BATCH_ENTRIES", 1)
    for seed in range(20):
        box = BookieBox(seed)
        await box.call(add(7, 0, b"entry 0"))
        await settle()
        box.disk.hold = True
        for n in range(1, 4):
            box.send(add(7, n, b"entry %d" % n))
        await settle()
        box.disk.write_without_sync()
        box.kill()
        write = Index.write

        def fail_after(index: Index, entries, *rest, write=write, **more) -> None:
            write(index, entries, *rest, **more)
            if entries and entries[0][1] == 3:
                raise OSError("power failure")

        with monkeypatch.context() as patch:
            patch.setattr(Index, "write", fail_after)
            with pytest.raises(OSError, match="power failure"):
                box.start()
        box.lose_power()
        box.start()
        assert box.checkpoint.damage == ()
        assert (await entries(box, 1)) == expected(1)


async def test_a_file_that_was_being_made_is_made_again(caplog) -> None:
    box = await filled(3, log_file_bytes_max=300)
    last = max(box.volume.files)
    number = box.checkpoint.newest
    assert last == file_name(number)
    box.kill()
    box.volume.create(file_name(number + 1)).write(0, b"Quire")
    box.start()
    assert "log.unfinished_file" in caplog.text
    assert await entries(box, 3) == expected(3)
    assert await box.status(add(7, 3, b"entry 3")) is Status.OK
    box.restart()
    assert await entries(box, 4) == expected(4)


async def test_files_are_rolled_and_all_are_read() -> None:
    box = await filled(20, log_file_bytes_max=300)
    assert len([name for name in box.volume.files if name.startswith("log/")]) > 4
    assert box.checkpoint.numbers == list(range(1, len(box.checkpoint.files) + 1))
    box.kill()
    box.index_store.wipe()
    box.start()
    assert await entries(box, 20) == expected(20)


@pytest.mark.parametrize("which", [0, 1, -1])
async def test_a_missing_file_is_a_refusal(which: int) -> None:
    box = await filled(10, log_file_bytes_max=300)
    box.kill()
    names = [name for name in sorted(box.volume.files) if name.startswith("log/")]
    del box.volume.files[names[which]]
    with pytest.raises(LogIncomplete, match="missing"):
        box.start()


async def test_a_missing_newest_file_is_noticed_by_the_index() -> None:
    box = await filled(1)
    box.kill()
    del box.volume.files[FIRST]
    box.disk.save("CHECKPOINT", box.checkpoint._replace(files=()).encode())
    with pytest.raises(LogIncomplete, match="index refers to it"):
        box.start()


async def test_a_file_of_another_bookie_is_a_refusal() -> None:
    box, other = await filled(1), await filled(1)
    box.kill()
    alien = bytes(other.volume.files[FIRST].cached)
    file = box.volume.create(FIRST)
    file.write(0, alien[:FILE_HEADER_BYTES].replace(alien[16:24], bytes(8)))
    file.write(0, alien)
    box.disk.save("CHECKPOINT", box.checkpoint._replace(salt=1).encode())
    with pytest.raises(LogIncomplete, match="another bookie"):
        box.start()


async def test_damage_that_the_index_can_name_stays_an_error_of_that_entry() -> None:
    box = await filled()
    await box.storage.close()
    flip(box, position_of(box, 2) + 50)
    box.restart()
    found = await entries(box, 6)
    assert found == [*expected(2), Status.IO_ERROR, *expected(5)[3:], Status.NO_ENTRY]
    assert not box.storage.has_damage
    assert box.metrics.unreadable_entries == 1


async def test_damage_that_nobody_can_name_makes_every_miss_uncertain(caplog) -> None:
    box = await filled(log_file_bytes_max=1 << 20)
    victim = position_of(box, 2)
    box.kill()
    box.index_store.wipe()
    flip(box, victim + 50)
    box.start()
    assert "log.damaged" in caplog.text
    assert box.storage.has_damage
    [damage] = box.checkpoint.damage
    assert damage.number == 1
    assert damage.start == victim
    found = await entries(box, 6)
    assert found == [*expected(2), Status.IO_ERROR, *expected(5)[3:], Status.IO_ERROR]
    assert await box.status(read(99, 0)) is Status.IO_ERROR
    # A fence may have been lost as well: only recovery may write here.
    assert await box.status(add(7, 9)) is Status.READ_ONLY
    assert await box.status(add(98, 0)) is Status.READ_ONLY
    assert await box.status(add(7, 9, b"saved", recovery=True)) is Status.OK
    assert await box.status(fence(7, 0)) is Status.OK
    for _ in range(2):
        box.restart()
        assert box.checkpoint.damage == (damage,)
        assert payload_of(7, (await box.call(read(7, 9))).entry) == b"saved"
        assert await entries(box, 6) == found


async def test_a_damaged_file_is_left_alone_and_another_one_begun() -> None:
    box = await filled()
    before = bytes(box.volume.files[FIRST].cached)
    victim = position_of(box, 2)
    box.kill()
    flip(box, victim + 50)
    box.start()
    box.restart()
    assert len(box.volume.files[FIRST].cached) == len(before)
    assert await box.status(add(7, 9, recovery=True)) is Status.OK
    assert file_name(2) in box.volume.files


async def test_a_damaged_key_record_does_not_hide_the_ledgers_entries() -> None:
    box = await filled(3)
    box.kill()
    box.index_store.wipe()
    flip(box, FILE_HEADER_BYTES + 33)
    box.start()
    assert box.storage.has_damage
    assert await entries(box, 3) == expected(3)
    # The key is unknown: the first who asks gives it.
    assert await box.status(fence(7, 0)) is Status.OK


async def test_a_damaged_file_header_costs_nothing(caplog) -> None:
    box = await filled(3)
    box.kill()
    flip(box, 9)
    box.start()
    assert "log.bad_file_header" in caplog.text
    assert await entries(box, 3) == expected(3)
    assert not box.storage.has_damage


@pytest.mark.parametrize("rebuild", [False, True])
async def test_a_file_that_got_shorter_is_damage(rebuild: bool) -> None:
    box = await filled(10, log_file_bytes_max=300)
    box.kill()
    if rebuild:
        box.index_store.wipe()
        box.disk.save(
            "CHECKPOINT",
            box.checkpoint._replace(
                start=box.checkpoint.start._replace(number=1, position=FILE_HEADER_BYTES), group=1
            ).encode(),
        )
    file = box.volume.files[FIRST]
    size = len(file.cached)
    file.truncate(size - 20)
    file.synced(1)
    box.start()
    found = await entries(box, 10)
    assert Status.NO_ENTRY not in found
    assert found.count(Status.IO_ERROR) == 1
    if rebuild:
        assert box.checkpoint.damage[0].end == size


async def test_synced_bytes_that_vanish_from_the_end_are_damage_if_the_index_knows_them() -> None:
    box = await filled(3)
    box.kill()
    file = box.volume.files[FIRST]
    end = len(file.cached)
    last = position_of(box, 2)
    file.truncate(last)
    file.synced(1)
    box.start()
    assert box.checkpoint.damage == (Damage(1, last, end),)
    assert await entries(box, 4) == [*expected(2), Status.IO_ERROR, Status.IO_ERROR]


async def test_damage_twice_is_remembered_once(caplog) -> None:
    box = await filled(3)
    box.kill()
    flip(box, position_of(box, 1) + 40)
    box.start()
    first = box.checkpoint
    box.kill()
    box.index_store.wipe()
    box.start()
    assert box.checkpoint.damage == first.damage


async def test_replay_reports_what_it_found(caplog) -> None:
    caplog.set_level(logging.INFO)
    box = await filled(3)
    box.restart()
    assert "log.replayed files=1 records=2 ledgers=1 damaged_ranges=0" in caplog.text


async def test_many_entries_are_indexed_in_batches(monkeypatch) -> None:
    monkeypatch.setattr("bookie.storage.record_replay._BATCH_ENTRIES", 2)
    box = await filled(7)
    box.kill()
    box.index_store.wipe()
    box.start()
    assert await entries(box, 7) == expected(7)


async def test_a_failed_replay_closes_the_index() -> None:
    box = await filled(1)
    box.kill()
    closed: list[bool] = []

    class Watched:
        def end(self):
            return None

        def ledgers(self):
            raise OSError("cannot read")

        def close(self) -> None:
            closed.append(True)

    with pytest.raises(OSError, match="cannot read"):
        replay(CrashDisk(box.volume), lambda wipe: Watched(), log_file_bytes_max=1 << 20)
    assert closed == [True, True] or closed == [True]
