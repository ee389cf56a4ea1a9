"""A look at the disk that takes long: what it found is not what is there when it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import LAST_ENTRY, BatchReadRequest, Request, Status
from tests.fakes.bookie_box import LIMITS, BookieBox, add, payload_of, read, settle


class LateReaders:
    """Reader jobs that are done at once, and whose results arrive when they are let go."""

    def __init__(self, box: BookieBox) -> None:
        self._late: list[tuple[asyncio.Future[Any], Any]] = []
        self._reader_job = box.disk.reader_job
        self._box = box
        box.disk.reader_job = self._job  # type: ignore[method-assign]

    def _job(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._late.append((future, job()))
        return future

    def let_go(self) -> None:
        """What was found arrives, and later jobs are not late."""
        self._box.disk.reader_job = self._reader_job  # type: ignore[method-assign]
        for future, result in self._late:
            future.set_result(result)


async def test_a_look_that_began_before_a_group_was_lost_denies_no_durable_entry() -> None:
    """Entry 1 is durable, indexed, and gone from the cache when the disk is full for entry 2; the
    look saw nothing but entry 0."""
    box = BookieBox(limits=LIMITS._replace(cache_bytes_max=0))
    assert await box.status(add(7, 0, b"0")) is Status.OK
    await box.storage.close()
    box.restart()
    readers = LateReaders(box)
    last = box.send(read(7, LAST_ENTRY))
    await settle()
    assert await box.status(add(7, 1, b"1")) is Status.OK
    await settle()
    assert box.storage.indexer.waiting_entries == 0
    assert not box.storage.cache.entry_ids(LedgerId(7))
    box.volume.capacity_bytes = box.volume.used_bytes
    assert await box.status(add(7, 2, b"2")) is Status.IO_ERROR
    readers.let_go()
    await settle()
    found = await box.call(read(7, 1))
    assert found.status is Status.OK
    assert payload_of(7, found.entry) == b"1"
    found = await last
    assert found.status is Status.OK
    assert payload_of(7, found.entry) == b"1", "the last one is not what it was"
    assert await box.status(read(7, 2)) is Status.NO_ENTRY


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20], ids=["left the cache", "in the cache"])
@pytest.mark.parametrize(
    "request_",
    [read(7, 1), BatchReadRequest(LedgerId(7), EntryId(1), 9, 5, 1 << 20)],
    ids=["one", "a run"],
)
async def test_what_came_while_the_index_was_looked_into_is_not_denied(
    request_: Request, cache_bytes: int
) -> None:
    """Version 2 of the protocol tells equal reads apart by nothing: a late answer to one that came
    before the entry completes one that came after it, and a recovery would count it."""
    box = BookieBox(limits=LIMITS._replace(cache_bytes_max=cache_bytes))
    for entry in (0, 2):
        assert await box.status(add(7, entry)) is Status.OK
    await settle()
    readers = LateReaders(box)
    answer = box.send(request_)
    await settle()
    assert await box.status(add(7, 1, b"1")) is Status.OK
    await settle()
    assert box.storage.indexer.waiting_entries == 0
    assert bool(box.storage.cache.entry_ids(LedgerId(7))) == bool(cache_bytes)
    readers.let_go()
    found = await answer
    assert found.status is Status.OK
    assert box.storage.cache._looked_for == {}


async def test_a_hole_is_a_hole_whatever_else_comes_and_goes() -> None:
    box = BookieBox(limits=LIMITS._replace(cache_bytes_max=0))
    for entry in (0, 2):
        assert await box.status(add(7, entry)) is Status.OK
    await settle()
    readers = LateReaders(box)
    answers = [box.send(read(7, 1)) for _ in range(3)]
    await settle()
    assert await box.status(add(7, 3)) is Status.OK
    await settle()
    readers.let_go()
    await settle()
    assert [answer.result().status for answer in answers] == [Status.NO_ENTRY] * 3
    assert box.storage.cache._looked_for == {}


async def test_a_look_at_an_earlier_life_of_a_ledger_says_nothing_of_the_next() -> None:
    box = BookieBox(limits=LIMITS._replace(cache_bytes_max=0))
    assert await box.status(add(7, 0, b"0")) is Status.OK
    await box.storage.close()
    box.restart()
    readers = LateReaders(box)
    last = box.send(read(7, LAST_ENTRY))
    await settle()
    assert await box.delete(7) is Status.OK
    assert await box.status(add(7, 5, b"5")) is Status.OK
    readers.let_go()
    found = await last
    assert found.status is Status.OK
    assert payload_of(7, found.entry) == b"5"
