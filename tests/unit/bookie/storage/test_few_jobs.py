"""A few jobs at a time, in the order in which they came."""

from __future__ import annotations

import asyncio

from bookie.storage.reads import FewJobs


async def test_the_others_wait_in_their_order() -> None:
    submitted: list[asyncio.Future[int]] = []
    started: list[int] = []

    def submit(job):
        started.append(job())
        submitted.append(asyncio.get_running_loop().create_future())
        return submitted[-1]

    done: list[int] = []
    jobs = FewJobs(submit, at_once=2)
    for number in range(5):
        jobs.add(lambda number=number: number, lambda future: done.append(future.result()))
    assert started == [0, 1]
    submitted[1].set_result(1)
    await asyncio.sleep(0)
    assert (started, done) == ([0, 1, 2], [1])
    for number in (0, 2):
        submitted[number].set_result(number)
    await asyncio.sleep(0)
    assert (started, done) == ([0, 1, 2, 3, 4], [1, 0, 2])


async def test_a_job_that_fails_lets_the_next_one_begin() -> None:
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(OSError("no"))
    errors: list[object] = []
    jobs = FewJobs(lambda job: failed, at_once=1)
    for _ in range(2):
        jobs.add(lambda: None, lambda future: errors.append(future.exception()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(errors) == 2
