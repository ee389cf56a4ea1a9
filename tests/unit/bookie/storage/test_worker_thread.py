"""Threads that do jobs for the event loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from bookie.storage.disk import WorkerThread, WorkerThreads


async def test_jobs_are_done_in_order_and_their_outcomes_arrive() -> None:
    worker_thread, did = WorkerThread("test"), []

    def fail() -> None:
        raise OSError("no")

    first = worker_thread.run(lambda: did.append(threading.current_thread().name))
    failed = worker_thread.run(fail)
    last = worker_thread.run(lambda: did.append("last") or "result")
    await first
    with pytest.raises(OSError, match="no"):
        await failed
    assert await last == "result"
    assert did == ["test", "last"]
    worker_thread.close()


async def test_closing_waits_for_what_was_given() -> None:
    worker_thread, did = WorkerThread("test"), []
    done = worker_thread.run(lambda: (time.sleep(0.02), did.append("slow"))[0])
    worker_thread.close()
    assert did == ["slow"]
    await done


async def test_nobody_has_to_wait() -> None:
    worker_thread, did = WorkerThread("test"), []
    worker_thread.run(lambda: did.append("unwanted")).cancel()
    await worker_thread.run(lambda: did.append("wanted"))
    worker_thread.close()
    assert did[-1] == "wanted"


def test_a_closed_loop_is_no_trouble() -> None:
    worker_thread, may_end, did = WorkerThread("test"), threading.Event(), []

    async def give() -> None:
        worker_thread.run(lambda: (may_end.wait(), did.append("all"))[1])

    asyncio.run(give())
    may_end.set()
    worker_thread.close()
    assert did == ["all"]


async def test_several_threads_work_at_the_same_time_and_end_together() -> None:
    threads, meet = WorkerThreads("several", 2), threading.Barrier(2)
    both = [threads.run(lambda: (meet.wait(5), threading.current_thread().name)) for _ in range(2)]
    assert {name for _, name in await asyncio.gather(*both)} == {"several", "several_1"}
    did: list[int] = []
    for n in range(9):
        threads.run(lambda n=n: did.append(n))
    threads.close()
    assert sorted(did) == [*range(9)]
