"""Tasks that begin again when they fail: never in silence, never at full speed."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from client.errors import ConfigError
from client.node import background
from tests.fakes.virtual_time import VirtualTimeLoop


def in_virtual_time(scenario) -> list[dict]:
    """Run, and return what reached the loop's exception handler."""
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(scenario())
        return loop.errors
    finally:
        loop.close()


def test_a_task_that_fails_is_told_of_counted_and_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = background.failures["sweep"]
    began_s: list[float] = []

    async def work() -> None:
        began_s.append(asyncio.get_running_loop().time())
        if len(began_s) == 4:
            await asyncio.sleep(100)
        if len(began_s) <= 5:
            raise ZeroDivisionError("of ours")

    async def scenario() -> None:
        await background.keep(work, "sweep of something")

    told = in_virtual_time(scenario)
    pauses_s = [later - earlier for earlier, later in pairwise(began_s)]
    assert pauses_s == [1, 2, 4, 101, 2], "longer each time, anew after a good while"
    assert background.failures["sweep"] - before == 5
    assert len(told) == 5
    assert not any(context.get("fatal") for context in told)
    records = [each for each in caplog.records if each.message.startswith("task.failed")]
    assert [each.levelno for each in records] == [logging.ERROR] * 5
    assert all(each.exc_info and each.exc_info[1] is not None for each in records)


def test_pauses_do_not_grow_for_ever() -> None:
    began_s: list[float] = []

    async def work() -> None:
        began_s.append(asyncio.get_running_loop().time())
        raise ZeroDivisionError

    async def scenario() -> None:
        task = background.keep(work, "worker")
        await asyncio.sleep(1000)
        await background.stop(task)

    in_virtual_time(scenario)
    assert began_s[-1] - began_s[-2] == 60


def test_only_who_cancels_the_task_itself_ends_it() -> None:
    count = 0

    async def work() -> None:
        nonlocal count
        count += 1
        if count == 1:
            waited = asyncio.get_running_loop().create_future()
            waited.cancel()
            await waited
        await asyncio.sleep(1000)

    async def scenario() -> None:
        task = background.keep(work, "worker")
        await asyncio.sleep(10)
        assert count == 2
        await background.stop(task)
        assert task.cancelled()

    (context,) = in_virtual_time(scenario)
    assert isinstance(context["exception"], asyncio.CancelledError)


def test_a_piece_of_work_that_fails_is_told_of_and_counted_and_whoever_waits_hears_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = background.failures["piece"]

    async def fail(error: Exception) -> None:
        raise error

    async def scenario() -> None:
        for error in (ZeroDivisionError("of ours"), ConfigError("of the work")):
            task = background.begin(fail(error), "piece of something")
            with pytest.raises(type(error)):
                await task
        forgotten = background.begin(fail(ZeroDivisionError()), "piece of something")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert forgotten.done()
        cancelled = background.begin(asyncio.sleep(60), "piece of something")
        await background.stop(cancelled)

    told = in_virtual_time(scenario)
    assert background.failures["piece"] - before == len(told) == 2
    assert not any(context.get("fatal") for context in told)
    records = [each for each in caplog.records if each.message.startswith("task.failed")]
    assert len(records) == 2 and all(each.exc_info for each in records)
