"""Reads of the disk on reader threads: when they begin, and who hears of their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from bookie.storage.cold_reads import ColdReads
from bookie.storage.core.read_turns import ReadLimits
from client.histogram import loop_time
from client.ids import LedgerId

L7 = LedgerId(7)
LONG_REST = ReadLimits(rest_times=1e6, bytes_per_s_min=1, wait_s_max=1e6)


class Threads:
    """Reader threads whose jobs end when the test says so."""

    reader_threads = 4

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[Any]] = []
        self.second = asyncio.Event()
        """Two have begun."""

    def reader_job(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        del job
        self.begun.append(asyncio.get_running_loop().create_future())
        if len(self.begun) == 2:
            self.second.set()
        return self.begun[-1]

    async def end(self, number: int, found: Sequence[object] | OSError) -> None:
        if isinstance(found, OSError):
            self.begun[number].set_exception(found)
        else:
            self.begun[number].set_result(found)
        await asyncio.sleep(0)


class Group:
    """What a writer of groups tells of adds."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.written_bytes = 0


def reads_of(threads: Threads, limits: ReadLimits, *, beside_adds: bool) -> ColdReads:
    began_s = loop_time() if beside_adds else float("-inf")
    return ColdReads(threads, limits, now_s=loop_time, adds=Group(began_s))


async def test_without_adds_all_threads_read() -> None:
    threads = Threads()
    reads = reads_of(threads, LONG_REST, beside_adds=False)
    for _ in range(6):
        reads.add(L7, list, lambda done: None)
    assert len(threads.begun) == 4
    await threads.end(2, [])
    assert len(threads.begun) == 5


async def test_beside_adds_the_next_one_begins_after_a_rest() -> None:
    threads = Threads()
    reads = reads_of(
        threads, ReadLimits(rest_times=2.0, bytes_per_s_min=1, wait_s_max=1e6), beside_adds=True
    )
    for _ in range(2):
        reads.add(L7, list, lambda done: None)
    await asyncio.sleep(0.01)
    assert len(threads.begun) == 1
    await threads.end(0, [memoryview(bytes(1000))])
    assert len(threads.begun) == 1
    await asyncio.wait_for(threads.second.wait(), 10)


async def test_a_storage_that_ends_does_not_wait_for_rests() -> None:
    threads = Threads()
    reads = reads_of(threads, LONG_REST, beside_adds=True)
    for _ in range(4):
        reads.add(L7, list, lambda done: None)
    await asyncio.sleep(0.002)
    await threads.end(0, [memoryview(bytes(1000))])
    assert len(threads.begun) == 1
    draining = asyncio.create_task(reads.drain())
    await asyncio.sleep(0)
    assert len(threads.begun) == 4
    for number in (1, 2, 3):
        assert not draining.done()
        await threads.end(number, [])
    await asyncio.wait_for(draining, 10)


async def test_a_job_that_fails_is_over_too() -> None:
    threads = Threads()
    errors: list[object] = []
    reads = reads_of(threads, LONG_REST, beside_adds=False)
    for _ in range(5):
        reads.add(L7, list, lambda done: errors.append(done.exception()))
    error = OSError("no")
    await threads.end(0, error)
    assert errors == [error]
    assert len(threads.begun) == 5


async def test_a_recovery_does_not_wait() -> None:
    threads = Threads()
    reads = reads_of(threads, LONG_REST, beside_adds=True)
    for _ in range(2):
        reads.add(L7, list, lambda done: None)
    reads.add(L7, list, lambda done: None, is_urgent=True)
    assert len(threads.begun) == 2
