"""Reads: hot and cold, the ends of ledgers, and errors that never become absences."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bookie.errors import CorruptIndex
from bookie.storage.core.append_log import Location
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    BatchReadRequest,
    Buffer,
    ListEntriesRequest,
    Status,
)
from tests.fakes.bookie_box import (
    KEY,
    LIMITS,
    BookieBox,
    add,
    envelope,
    fence,
    payload_of,
    read,
    settle,
)

L7, E0 = LedgerId(7), EntryId(0)
CACHED = LIMITS._replace(cache_bytes_max=1 << 20)


async def test_recent_entries_are_read_from_memory() -> None:
    box = BookieBox(limits=CACHED)
    await box.call(add(7, 0))
    await settle()
    answer = box.send(read(7, 0))
    assert answer.done()
    assert box.metrics.cold_reads == 0
    assert (box.metrics.reads, box.metrics.read_bytes) == (1, 43)


async def test_entries_beyond_the_end_need_no_disk() -> None:
    box = BookieBox(limits=CACHED)
    await box.call(add(7, 0))
    assert box.send(read(7, 1)).result().status is Status.NO_ENTRY
    assert box.send(read(8, 0)).result().status is Status.NO_LEDGER
    assert box.metrics.cold_reads == 0


async def test_cold_reads_of_one_turn_share_jobs() -> None:
    box = BookieBox()
    for n in range(70):
        box.send(add(7, n, b"%d" % n))
    await settle()
    jobs: list[object] = []
    submit = box.disk.reader_job

    def counting(job):
        jobs.append(job)
        return submit(job)

    box.disk.reader_job = counting  # type: ignore[method-assign]
    answers = [box.send(read(7, n)) for n in range(70)]
    await settle()
    assert [payload_of(7, answer.result().entry) for answer in answers] == [
        b"%d" % n for n in range(70)
    ]
    assert len(jobs) == 3
    assert box.metrics.cold_reads == 70


async def test_a_turn_of_the_loop_brings_no_more_than_what_each_thread_reads_at_once() -> None:
    box = BookieBox()
    for n in range(1_500):
        box.send(add(7, n))
    await settle()
    box.storage.writer.began_s = float("-inf")  # reads are not beside adds any more
    waiting: list[asyncio.Future[object]] = []
    jobs = []

    def held(job):
        jobs.append(job)
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    box.disk.reader_job = held  # type: ignore[method-assign]
    answers = [box.send(read(7, n)) for n in range(1_500)]
    answered = 0
    while answered < 1_500:
        await settle()
        assert len(waiting) == min(box.disk.reader_threads, -(-(1_500 - answered) // 32))
        for future in waiting:
            future.set_result(jobs.pop(0)())
        waiting.clear()
        await settle()
        before, answered = answered, sum(each.done() for each in answers)
        assert 0 < answered - before <= 32 * box.disk.reader_threads


async def test_the_last_entry_is_the_last_one_when_it_is_answered() -> None:
    """A late answer may complete a later question: see "equal requests" in version 2."""
    box = BookieBox()
    await box.call(add(7, 0, b"first"))
    await settle()
    answer = box.send(read(7, LAST_ENTRY))
    assert not answer.done(), "the entry has to be read from disk"
    box.send(add(7, 1, b"second"))
    await settle()
    assert payload_of(7, answer.result().entry) == b"second"


async def test_an_entry_that_came_meanwhile_is_not_denied() -> None:
    box = BookieBox()
    for n in (0, 2):
        await box.call(add(7, n))
    await settle()
    answer = box.send(read(7, 1))
    assert not answer.done(), "only the index can say that there is a gap"
    await asyncio.sleep(0)  # the job has looked, its outcome is on the way
    box.send(add(7, 1, b"late"))
    await settle()
    assert payload_of(7, answer.result().entry) == b"late"


async def test_a_gap_in_the_middle_is_no_entry() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    await box.call(add(7, 2))
    assert await box.status(read(7, 1)) is Status.NO_ENTRY


async def test_the_end_of_an_old_ledger_is_looked_up_once() -> None:
    box = BookieBox()
    await box.call(add(7, 3, lac=2))
    box.restart()
    first, second = box.send(read(7, -1)), box.send(read(7, -1))
    await settle()
    assert first.result().entry == second.result().entry
    assert first.result().max_lac == 2
    assert await box.status(add(7, 1)) is Status.OK
    found = await box.call(read(7, -1))
    assert (found.entry_id, found.max_lac) == (-1, 2)
    assert found.entry[8:16] == (3).to_bytes(8, "big")


async def test_adds_before_the_look_up_are_not_forgotten() -> None:
    box = BookieBox()
    await box.call(add(7, 3, lac=2))
    box.restart()
    await box.call(add(7, 9, lac=5))
    found = await box.call(read(7, -1))
    assert found.entry[8:16] == (9).to_bytes(8, "big")
    assert found.max_lac == 5
    box.restart()
    await box.call(add(7, 4, lac=1))
    found = await box.call(read(7, -1))
    assert found.entry[8:16] == (9).to_bytes(8, "big")
    assert found.max_lac == 5


async def test_an_unreadable_end_is_an_error_but_spoils_no_other_entry() -> None:
    box = BookieBox()
    for n in range(3):
        await box.call(add(7, n, lac=n - 1))
    await box.storage.close()
    last = box.index.places.location(LedgerId(7), EntryId(2))
    assert last is not None
    file = box.volume.files["log/0000000001.log"]
    for content in (file.cached, file.durable):
        content[last.position + 40] ^= 1
    box.restart()
    assert await box.status(read(7, -1)) is Status.IO_ERROR
    found = await box.call(read(7, 1))
    assert (found.status, found.max_lac) == (Status.OK, None)


async def test_list_of_entries_includes_those_on_their_way() -> None:
    box = BookieBox()
    assert await box.status(ListEntriesRequest(LedgerId(7))) is Status.NO_LEDGER
    await box.call(add(7, 0))
    await settle()
    box.disk.hold = True
    box.send(add(7, 1))
    await settle()
    found = await box.call(ListEntriesRequest(LedgerId(7)))
    assert found.availability[64:80] == bytes(16)
    assert found.availability[80:84] == (2).to_bytes(4, "big")


async def test_a_broken_index_is_an_error(monkeypatch) -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    await settle()

    def broken(*args: object) -> None:
        raise CorruptIndex("block checksum mismatch")

    for method in ("entry_ids", "location", "last_entry"):
        monkeypatch.setattr(box.index.places, method, broken)
    assert await box.status(ListEntriesRequest(LedgerId(7))) is Status.IO_ERROR
    assert await box.status(read(7, 0)) is Status.IO_ERROR
    box.restart()
    for method in ("entry_ids", "location", "last_entry"):
        monkeypatch.setattr(box.index.places, method, broken)
    assert await box.status(read(7, -1)) is Status.IO_ERROR


async def test_a_missing_log_file_is_an_error_of_its_entries() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    await settle()
    del box.volume.files["log/0000000001.log"]
    assert await box.status(read(7, 0)) is Status.IO_ERROR


async def test_a_run_goes_on_from_disk_to_memory() -> None:
    box = BookieBox()
    for n in range(3):
        await box.call(add(7, n, b"old"))
    await settle()
    read_run = box.storage.reads.read_run
    runs: list[tuple[Status, list[bytes]]] = []

    def on_run(status: Status, entries: Sequence[Buffer]) -> None:
        runs.append((status, [payload_of(7, entry) for entry in entries]))

    read_run(L7, E0, 100, 1 << 20, on_run)
    assert runs == []
    for n in (1, 3):  # the index does not know of these before the run is read
        box.storage.cache.put(L7, EntryId(n), Location(9, 1000, 50), envelope(7, n, b"new"))
    await settle()
    read_run(L7, EntryId(3), 100, 1 << 20, on_run)
    assert runs == [(Status.OK, [b"old", b"new", b"old"]), (Status.OK, [b"new"])]
    assert (box.metrics.reads, box.metrics.cold_reads, box.metrics.cache_hits) == (4, 3, 1)


async def test_a_run_without_a_beginning_says_why() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    await box.call(add(7, 2))
    await settle()
    found: list[Status] = []

    def on_run(status: Status, entries: Sequence[Buffer]) -> None:
        assert not entries
        found.append(status)

    for ledger, first in ((8, 0), (7, 1), (7, 3)):
        box.storage.reads.read_run(LedgerId(ledger), EntryId(first), 9, 1 << 20, on_run)
        await settle()
    del box.volume.files["log/0000000001.log"]
    box.storage.reads.read_run(L7, E0, 9, 1 << 20, on_run)
    await settle()
    assert found == [Status.NO_LEDGER, Status.NO_ENTRY, Status.NO_ENTRY, Status.IO_ERROR]
    assert box.metrics.unreadable_entries == 1


async def test_drain_waits_for_reads_on_their_way() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    await settle()
    answers = [box.send(read(7, 0)) for _ in range(3)]
    await settle(1)
    await box.storage.reads.drain()
    await settle(2)
    assert all(answer.done() for answer in answers)


@pytest.mark.parametrize("cache_bytes_max", [0, 100, 1 << 20])
async def test_the_cache_size_never_shows(cache_bytes_max: int) -> None:
    box = BookieBox(limits=LIMITS._replace(cache_bytes_max=cache_bytes_max))
    for n in range(30):
        await box.call(add(7, n, b"%d" % n))
        for m in range(n + 1):
            assert payload_of(7, (await box.call(read(7, m))).entry) == b"%d" % m


async def test_large_entries_are_read_one_by_one_beside_what_others_ask_for() -> None:
    box = BookieBox()
    for n in range(3):
        await box.call(add(7, n, bytes(200 * 1024)))
    for n in range(3):
        await box.call(add(8, n))
    await settle()
    jobs: list[list[object]] = []
    reader_job = box.disk.reader_job

    def counted(job):
        def run():
            found = job()
            jobs.append(found)
            return found

        return reader_job(run)

    box.disk.reader_job = counted  # type: ignore[method-assign]
    answers = [box.send(read(ledger, n)) for ledger in (7, 8) for n in range(3)]
    await asyncio.wait_for(asyncio.gather(*answers), 10)
    assert sorted(map(len, jobs)) == [1, 1, 1, 3]


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_recovery_does_not_wait_for_readers_that_give_way(is_batch: bool) -> None:
    box = BookieBox()
    for ledger in (7, 8):
        await box.call(add(ledger, 0))
    await settle()
    begun: list[object] = []

    def held(job):
        begun.append(job)
        return asyncio.get_running_loop().create_future()

    box.disk.reader_job = held  # type: ignore[method-assign]
    for _ in range(2):
        box.send(read(7, 0))
        await settle()
    assert len(begun) == 1, "beside adds one at a time"
    batch = BatchReadRequest(LedgerId(8), E0, 1, 5, 1000, fence=True, master_key=KEY)
    box.send(batch if is_batch else fence(8, 0))
    await settle()
    assert len(begun) == 2
