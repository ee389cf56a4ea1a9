"""Deleting a ledger: gone at once, gone after a crash, and its fence remembered for a while."""

from __future__ import annotations

import asyncio

import pytest

from bookie.storage.core.append_log import Deletion
from client.ids import LedgerId
from client.wire.bookkeeper.messages import ListEntriesRequest, Status
from tests.fakes.bookie_box import LIMITS, BookieBox, add, fence, payload_of, read, settle
from tests.unit.bookie.storage.test_storage import write_lac

L7 = LedgerId(7)


async def filled(count: int = 5) -> BookieBox:
    box = BookieBox(limits=LIMITS._replace(cache_bytes_max=1 << 20))
    for n in range(count):
        assert await box.status(add(7, n)) is Status.OK
    assert await box.status(add(8, 0, b"stays")) is Status.OK
    return box


async def test_a_deleted_ledger_is_unknown_and_others_stay() -> None:
    box = await filled()
    assert await box.delete(7) is Status.OK
    assert await box.status(read(7, 0)) is Status.NO_LEDGER
    assert await box.status(read(7, -1)) is Status.NO_LEDGER
    assert await box.status(ListEntriesRequest(L7)) is Status.NO_LEDGER
    assert box.index.places.entry_ids(L7) == []
    assert box.index.ledger(L7) is None
    assert list(box.index.deletions()) == []
    assert payload_of(8, (await box.call(read(8, 0))).entry) == b"stays"
    assert await box.delete(99) is Status.OK
    assert box.metrics.deleted_ledgers == 1


async def test_an_unfenced_ledger_may_be_written_again_and_shows_nothing_old() -> None:
    box = await filled()
    await box.delete(7)
    assert await box.status(add(7, 3, b"new", recovery=True)) is Status.OK
    assert await box.status(read(7, 0)) is Status.NO_ENTRY
    assert payload_of(7, (await box.call(read(7, 3))).entry) == b"new"
    box.restart()
    assert await box.status(read(7, 0)) is Status.NO_ENTRY
    assert payload_of(7, (await box.call(read(7, -1))).entry) == b"new"


async def test_while_it_goes_nothing_is_promised() -> None:
    box = await filled()
    await box.call(fence(8))
    box.disk.hold = True
    going = [asyncio.ensure_future(box.delete(ledger)) for ledger in (7, 8)]
    await settle()
    assert await box.status(read(7, 0)) is Status.NO_LEDGER
    assert await box.status(fence(7)) is Status.IO_ERROR
    assert await box.status(add(7, 9)) is Status.IO_ERROR
    assert await box.status(add(7, 9, recovery=True)) is Status.IO_ERROR
    assert await box.status(write_lac(7, 3)) is Status.NO_LEDGER
    assert await box.status(add(8, 9)) is Status.FENCED
    assert await box.status(add(8, 9, recovery=True)) is Status.IO_ERROR
    assert await box.delete(7) is Status.IO_ERROR
    assert not any(task.done() for task in going)
    box.disk.release()
    assert await asyncio.gather(*going) == [Status.OK, Status.OK]


@pytest.mark.parametrize("crash", ["none", "kill", "power", "index"])
async def test_4462_a_fenced_and_deleted_ledger_is_not_begun_anew(crash: str) -> None:
    """A writer that was fenced without noticing sends an add after the ledger's deletion."""
    box = await filled()
    await box.call(fence(7))
    assert await box.delete(7, time_ms=5000) is Status.OK
    if crash == "power":
        box.lose_power()
        box.start()
    elif crash != "none":
        box.kill()
        box.index_store.corrupt = crash == "index"
        box.start()
    assert await box.status(add(7, 5)) is Status.FENCED
    assert await box.status(write_lac(7, 5)) is Status.NO_LEDGER
    assert await box.status(read(7, -1)) is Status.NO_LEDGER
    # A recovery may bring the ledger back; then it is fenced from the start, durably.
    assert await box.status(add(7, 1, b"again", recovery=True)) is Status.OK
    assert await box.status(add(7, 5)) is Status.FENCED
    box.restart()
    assert await box.status(add(7, 5)) is Status.FENCED
    assert payload_of(7, (await box.call(read(7, 1))).entry) == b"again"


async def test_4462_a_fence_brings_it_back_fenced() -> None:
    box = await filled()
    await box.call(fence(7))
    await box.delete(7)
    assert await box.status(fence(7)) is Status.NO_ENTRY
    assert await box.status(add(7, 5)) is Status.FENCED


async def test_a_tombstone_is_forgotten_in_the_end() -> None:
    box = await filled()
    await box.call(fence(7))
    await box.delete(7, time_ms=5000)
    await box.storage.forget_deletions(5000)
    assert await box.status(add(7, 5)) is Status.FENCED
    await box.storage.forget_deletions(5001)
    assert list(box.index.deletions()) == []
    assert await box.status(add(7, 5)) is Status.OK


async def test_a_crash_before_the_record_is_durable_deletes_nothing() -> None:
    box = await filled()
    box.disk.hold = True
    task = asyncio.ensure_future(box.delete(7))
    await settle()
    box.lose_power()
    task.cancel()
    box.start()
    assert await box.status(read(7, 4)) is Status.OK


async def test_a_start_finishes_what_a_crash_interrupted() -> None:
    box = await filled(20)
    await box.call(fence(7))
    await settle()
    deletion = Deletion(True, 5000)
    end = box.index.end()
    assert end is not None
    box.index.write([], [], end, deletions=[(L7, deletion)])
    assert box.index.clear_entries(L7, 3)
    await box.storage.close()
    box.restart()
    assert list(box.index.deletions()) == [(L7, deletion, True)]
    assert box.index.places.entry_ids(L7) == []
    assert await box.status(read(7, 10)) is Status.NO_LEDGER
    assert await box.status(add(7, 5)) is Status.FENCED


async def test_a_full_disk_leaves_the_ledger_where_it_was() -> None:
    box = await filled()
    box.volume.capacity_bytes = box.volume.used_bytes
    assert await box.delete(7) is Status.IO_ERROR
    assert await box.status(read(7, 4)) is Status.OK
    box.volume.capacity_bytes = 1 << 40
    assert await box.delete(7) is Status.OK
    assert await box.status(read(7, 4)) is Status.NO_LEDGER


async def test_a_large_ledger_goes_in_small_steps(monkeypatch) -> None:
    monkeypatch.setattr("bookie.storage.index.indexer._CLEARED_AT_ONCE", 10)
    box = await filled(35)
    await settle()
    jobs = 0
    run = box.disk.index_job

    def count(job):
        nonlocal jobs
        jobs += 1
        return run(job)

    monkeypatch.setattr(box.disk, "index_job", count)
    assert await box.delete(7) is Status.OK
    assert jobs == 1 + 4 + 1
    assert box.index.places.entry_ids(L7) == []


async def test_long_polls_of_a_deleted_ledger_end() -> None:
    box = await filled()
    poll = box.send(read(7, 0)._replace(previous_lac=100, timeout_ms=60_000))
    await settle()
    assert not poll.done()
    await box.delete(7)
    assert (await poll).status is Status.NO_LEDGER


async def test_close_does_not_wait_for_deletions() -> None:
    box = await filled()
    task = asyncio.ensure_future(box.delete(7))
    await asyncio.sleep(0)
    await box.storage.close()
    assert await task in (Status.OK, Status.IO_ERROR)
    box.restart()
    assert await box.status(read(7, 0)) is Status.NO_LEDGER
