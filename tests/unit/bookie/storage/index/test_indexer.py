"""The index follows the log; checkpoints follow the index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bookie.storage.core.append_log import LogPosition
from client.ids import LedgerId
from tests.fakes.bookie_box import LIMITS, BookieBox, add, fence, settle


async def test_groups_that_wait_are_indexed_together(monkeypatch) -> None:
    box = BookieBox()
    waiting: list[asyncio.Future[None]] = []

    def slow(job: Callable[[], None]) -> asyncio.Future[None]:
        job()
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    monkeypatch.setattr(box.disk, "index_job", slow)
    written: list[int] = []
    write = box.index.write

    def note(entries, *rest, **more) -> None:
        written.append(len(entries))
        write(entries, *rest, **more)

    monkeypatch.setattr(box.index, "write", note)
    for n in range(5):
        await box.call(add(7, n))
    assert written == [1]
    waiting[0].set_result(None)
    await settle()
    assert written == [1, 4]


async def test_a_group_waits_a_moment_for_others(monkeypatch) -> None:
    box = BookieBox(limits=LIMITS._replace(index_gather_s=0.05))
    written: list[int] = []
    monkeypatch.setattr(box.index, "write", lambda entries, *_, **__: written.append(len(entries)))
    for n in range(5):
        await box.call(add(7, n))
    assert box.storage.indexer.waiting_entries == 5
    await asyncio.sleep(0.06)
    await settle()
    assert box.storage.indexer.waiting_entries == 0
    assert written == [5]


async def test_nothing_waits_while_adds_wait_for_room() -> None:
    limits = LIMITS._replace(index_gather_s=60.0)
    box = BookieBox(limits=limits, pending_bytes_max=1)
    await box.call(add(7, 0))
    await settle()
    assert box.storage.indexer.waiting_entries == 0


async def test_what_the_cache_would_have_to_hold_does_not_wait() -> None:
    box = BookieBox(limits=LIMITS._replace(index_gather_s=60.0))
    await box.call(add(7, 0, bytes(1 << 20)))
    await settle()
    assert box.storage.indexer.waiting_entries == 0


async def test_the_end_does_not_wait_either() -> None:
    box = BookieBox(limits=LIMITS._replace(index_gather_s=60.0))
    await box.call(add(7, 0))
    await settle()
    assert box.storage.indexer.waiting_entries == 1
    await box.storage.indexer.close()
    assert box.storage.indexer.waiting_entries == 0


async def test_a_checkpoint_is_due_after_enough_log() -> None:
    box = BookieBox(
        limits=LIMITS._replace(checkpoint=LIMITS.checkpoint._replace(checkpoint_bytes=1000))
    )
    await box.call(add(7, 0))
    await settle()
    first = box.checkpoint.start
    await box.call(add(7, 1, bytes(500)))
    await settle()
    assert box.checkpoint.start == first
    await box.call(add(7, 2, bytes(500)))
    await settle()
    assert box.checkpoint.start.position > first.position + 1000
    assert box.index_store.batches == []


async def test_a_checkpoint_is_due_after_enough_records() -> None:
    """A start must not replay millions of small entries."""
    box = BookieBox(
        limits=LIMITS._replace(checkpoint=LIMITS.checkpoint._replace(checkpoint_records=4))
    )
    starts = []
    for n in range(10):
        await box.call(add(7, n))
        await settle()
        starts.append(box.checkpoint.start)
    # One for the new file; then one for each four records.
    changes = [n for n in range(1, 10) if starts[n] != starts[n - 1]]
    assert changes == [4, 8]


async def test_a_checkpoint_is_due_after_enough_time() -> None:
    box = BookieBox(
        limits=LIMITS._replace(checkpoint=LIMITS.checkpoint._replace(checkpoint_interval_s=0.0))
    )
    for n in range(3):
        await box.call(add(7, n))
        await settle()
        assert box.checkpoint.start == box.index.end()


async def test_a_new_file_is_in_the_checkpoint_at_once() -> None:
    box = BookieBox(log_file_bytes_max=400)
    for n in range(5):
        await box.call(add(7, n, bytes(300)))
        await settle()
        files = sum(name.startswith("log/") for name in box.volume.files)
        assert box.checkpoint.numbers == list(range(1, files + 1))
    assert files > 3


async def test_the_last_checkpoint_covers_everything() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    await settle()
    await box.call(add(7, 1))
    await settle()
    assert box.checkpoint.start < LogPosition(*box.index.end() or (0, 0))
    await box.storage.close()
    assert box.checkpoint.start == box.index.end()
    assert box.key_values.is_closed


async def test_the_index_knows_no_fence_before_the_log_does() -> None:
    """Else a start would answer for a fence that is gone when the index is."""
    box = BookieBox()
    box.disk.hold = True
    box.send(add(7, 0))
    await settle()
    answer = box.send(fence(7))
    box.disk.release()
    await settle()
    record = box.index.ledger(LedgerId(7))
    assert record is not None
    assert not record.fenced
    box.disk.release()
    await settle()
    assert answer.done()
    record = box.index.ledger(LedgerId(7))
    assert record is not None
    assert record.fenced


async def test_group_numbers_are_not_used_again_after_a_start() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    await box.storage.close()
    groups = [box.checkpoint.group]
    for n in range(1, 4):
        box.restart()
        await box.call(add(7, n))
        await settle()
        await box.storage.close()
        groups.append(box.checkpoint.group)
    assert groups == sorted(set(groups))
