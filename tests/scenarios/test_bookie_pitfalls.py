"""Known failures of Apache bookies, by number, where no other test carries their name.

`tests/README.md` has the whole list.
"""

from __future__ import annotations

import asyncio

import pytest

from bookie.storage.core.append_log import file_name
from bookie.storage.index.indexer import FILE_NAME, decode_checkpoint
from client.ids import LedgerId
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import LIMITS, BookieBox, add, fence, payload_of, read, settle
from tests.fakes.disk import CrashDisk
from tests.fakes.ledger_directories import DirectoryRack


async def test_4701_one_ledger_has_one_object_for_fence_and_add() -> None:
    """There, two threads made two handles, and the fence was in the wrong one."""
    for order in ([add(7, 0), fence(7), add(7, 1)], [fence(7), add(7, 0), add(7, 1)]):
        box = BookieBox()
        answers = [box.send(request) for request in order]
        known = box.storage.ledgers.get(LedgerId(7))
        await settle()
        assert box.storage.ledgers.get(LedgerId(7)) is known
        after = [answer.result().status for answer in answers][order.index(fence(7)) + 1 :]
        assert set(after) == {Status.FENCED}


async def test_4843_a_checkpoint_with_nothing_but_a_fence_keeps_the_fence() -> None:
    """There, an empty write cache moved the mark past a fence that was never flushed."""
    box = BookieBox(
        limits=LIMITS._replace(checkpoint=LIMITS.checkpoint._replace(checkpoint_interval_s=0.0))
    )
    assert await box.status(add(7, 0)) is Status.OK
    await settle()
    before = box.checkpoint.start
    assert await box.status(fence(7)) is Status.OK
    assert await box.status(fence(8)) is Status.NO_ENTRY
    await settle()
    assert box.checkpoint.start > before, "the checkpoint is behind the fences"
    box.lose_power()
    box.start()
    for ledger in (7, 8):
        assert await box.status(add(ledger, 5)) is Status.FENCED


async def test_3329_4844_each_directory_has_a_mark_of_its_own() -> None:
    """There, one mark covered a directory that had not been flushed."""
    rack = DirectoryRack(2)
    await rack.start()
    for ledger in (0, 1):
        for entry in range(5):
            assert await rack.status(add(ledger, entry, b"%d" % entry)) is Status.OK
    await settle()
    one, other = rack.ledger_directories.directories
    marks = [ledger_directory.storage.indexer.checkpoint.start for ledger_directory in (one, other)]
    await one.storage.close()
    assert decode_checkpoint(rack.bays[0].disk.load(FILE_NAME) or b"").start > marks[0]
    assert decode_checkpoint(rack.bays[1].disk.load(FILE_NAME) or b"").start == marks[1]
    for bay in rack.bays:
        bay.disk.kill()
        bay.volume.power_lost()
        bay.contents.power_lost()
    await rack.start()
    for ledger in (0, 1):
        for entry in range(5):
            found = await rack.call(read(ledger, entry))
            assert payload_of(ledger, found.entry) == b"%d" % entry


async def test_4105_4740_checkpoints_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, two of them overlapped, and the older one came last."""
    box = BookieBox(
        limits=LIMITS._replace(checkpoint=LIMITS.checkpoint._replace(checkpoint_bytes=300)),
        log_file_bytes_max=2000,
    )
    saved = []
    save = CrashDisk.save

    def note(disk: CrashDisk, name: str, data: bytes) -> None:
        if name == FILE_NAME:
            saved.append(decode_checkpoint(data).start)
        save(disk, name, data)

    monkeypatch.setattr(CrashDisk, "save", note)
    answers = []
    for entry in range(60):
        answers.append(box.send(add(7, entry, bytes(entry))))
        if entry % 7 == 0:
            await asyncio.sleep(0)
        if entry == 30:
            await box.reclaim()
    await asyncio.gather(*answers)
    await settle()
    await box.storage.close()
    assert len(saved) > 5
    assert saved == sorted(saved)


@pytest.mark.parametrize("crash", ["kill", "lose_power"])
async def test_1254_2087_what_was_replayed_is_not_replayed_again(crash: str) -> None:
    """There, marks did not move while the journal was replayed."""
    box = BookieBox()
    for entry in range(20):
        await box.call(add(7, entry))
    await settle()
    getattr(box, crash)()
    box.start()
    replayed = box.checkpoint.start
    assert replayed.position > 20 * 64
    getattr(box, crash)()
    box.start()
    assert box.checkpoint.start == replayed
    assert await box.status(read(7, 19)) is Status.OK


async def test_4040_4041_4607_a_wrong_header_does_not_make_a_file_seem_empty() -> None:
    """There, garbage collection took such a log for one without ledgers, and deleted it."""
    box = BookieBox(log_file_bytes_max=500)
    for entry in range(20):
        await box.call(add(7, entry, bytes(100)))
    await settle()
    files = box.log_numbers
    for number in files[:-1]:
        for content in (file := box.volume.files[file_name(number)]).cached, file.durable:
            content[:64] = bytes(64)
    for _ in range(2):
        await box.reclaim(threshold=0.0)
        await box.reclaim(threshold=0.5)
        assert set(files) <= set(box.log_numbers)
        for entry in range(20):
            assert await box.status(read(7, entry)) is Status.OK
        box.restart()


async def test_530_entries_that_are_not_indexed_yet_survive_reclaim() -> None:
    """There, compaction lost entries that were written while it ran."""
    box = BookieBox(log_file_bytes_max=500)
    for entry in range(20):
        await box.call(add(7, entry, bytes(100)))
    await settle()
    box.disk.hold = True
    late = [box.send(add(7, entry, b"again")) for entry in range(5)]
    reclaiming = asyncio.create_task(box.reclaim(threshold=1.1))
    await settle()
    box.disk.hold = False
    box.disk.release()
    await reclaiming
    await asyncio.gather(*late)
    await settle()
    for restart in (lambda: None, box.restart):
        restart()
        for entry in range(20):
            found = await box.call(read(7, entry))
            assert payload_of(7, found.entry) == (b"again" if entry < 5 else bytes(100))
