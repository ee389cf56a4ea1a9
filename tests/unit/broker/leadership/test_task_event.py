"""An event that one task waits for."""

from __future__ import annotations

import asyncio

import pytest

from broker.leadership.ownership import TaskEvent


async def _waiting(event: TaskEvent) -> asyncio.Task[None]:
    task = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    return task


async def test_waiting_lasts_until_it_is_set() -> None:
    event = TaskEvent()
    task = await _waiting(event)
    assert not task.done()
    event.set()
    event.set()
    await task


async def test_nobody_waits_for_what_was_set_until_it_is_cleared() -> None:
    event = TaskEvent()
    event.set()
    await event.wait()
    await event.wait()
    event.clear()
    task = await _waiting(event)
    assert not task.done()
    event.set()
    await task


async def test_a_task_that_was_woken_goes_on_although_the_event_is_cleared_meanwhile() -> None:
    event = TaskEvent()
    task = await _waiting(event)
    event.set()
    event.clear()
    await task
    again = await _waiting(event)
    assert not again.done()
    event.set()
    await again


async def test_a_cancelled_wait_is_over() -> None:
    event = TaskEvent()
    task = await _waiting(event)
    task.cancel()
    event.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    event.clear()
    again = await _waiting(event)
    event.set()
    await again


async def test_two_tasks_cannot_wait() -> None:
    event = TaskEvent()
    task = await _waiting(event)
    with pytest.raises(AssertionError, match="two tasks"):
        await event.wait()
    event.set()
    await task
