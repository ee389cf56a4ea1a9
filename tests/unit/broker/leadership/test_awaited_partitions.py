"""For what, for how long and in which order requests wait for partitions about to be led."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from broker.leadership.awaited_partitions import AwaitedPartitions, Key
from tests.fakes import virtual_time

KEY, OTHER = (UUID(int=7), 0), (UUID(int=7), 1)
HOLD_S = 1.0


def run(scenario: Callable[[AwaitedPartitions], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        await scenario(AwaitedPartitions(HOLD_S, 100))

    virtual_time.run(inside())


def test_a_wait_ends_when_the_partition_is_led_and_in_order() -> None:
    async def scenario(awaited: AwaitedPartitions) -> None:
        awaited.begin(KEY)
        called: list[int] = []
        for number in range(3):
            awaited.wait(KEY, lambda number=number: called.append(number))
        awaited.wait(KEY, lambda: called.append(99)).cancel()
        awaited.begin(OTHER)
        awaited.end(OTHER)
        await asyncio.sleep(0.1)
        assert called == []
        awaited.end(KEY)
        assert called == [], "not inside the takeover"
        await asyncio.sleep(0)
        assert called == [0, 1, 2]
        await asyncio.sleep(2 * HOLD_S)
        assert called == [0, 1, 2], "once each"
        assert not awaited._waits
        assert awaited.left_s(KEY) == 0

    run(scenario)


def test_a_partition_is_waited_for_once_however_often_its_takeover_fails() -> None:
    async def scenario(awaited: AwaitedPartitions) -> None:
        loop = asyncio.get_running_loop()
        assert awaited.left_s(KEY) == 0, "it is not wanted here"
        awaited.begin(KEY)
        await asyncio.sleep(0.4)
        awaited.begin(KEY)
        began_s = loop.time()
        await awaited.settled(KEY)
        assert abs(loop.time() - began_s - 0.6) < 0.01
        awaited.begin(KEY)
        assert awaited.left_s(KEY) == 0
        awaited.end(KEY)
        awaited.begin(KEY)
        assert awaited.left_s(KEY) == HOLD_S, "it was led meanwhile"
        assert not awaited._waits

    run(scenario)


def test_nobody_waits_for_longer_than_its_own_timeout() -> None:
    async def scenario(awaited: AwaitedPartitions) -> None:
        awaited.begin(KEY)
        called: list[str] = []
        awaited.wait(KEY, lambda: called.append("short"), 0.2)
        awaited.wait(KEY, lambda: called.append("long"), 30.0)
        await asyncio.sleep(0.25)
        assert called == ["short"]
        await asyncio.sleep(HOLD_S - 0.2)
        assert called == ["short", "long"]

    run(scenario)


def test_who_gives_up_is_forgotten() -> None:
    async def scenario(awaited: AwaitedPartitions) -> None:
        awaited.begin(KEY)
        task = asyncio.ensure_future(awaited.settled(KEY))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not awaited._waits
        awaited.end(KEY)

    run(scenario)


def test_what_waits_holds_so_many_bytes_at_most() -> None:
    awaited = AwaitedPartitions(HOLD_S, 100)
    assert awaited.take(60)
    assert not awaited.take(41)
    assert awaited.take(40)
    awaited.give(60)
    assert awaited.held_bytes == 40
    assert not AwaitedPartitions().take(1)


def test_the_first_wait_for_a_partition_in_line_brings_it_forward_and_its_time_begins() -> None:
    async def scenario(awaited: AwaitedPartitions) -> None:
        wanted: list[Key] = []
        awaited.on_wanted = wanted.append
        awaited.expect(KEY)
        await asyncio.sleep(5)
        assert awaited.left_s(KEY) == HOLD_S, "it is in line"
        assert not awaited.is_waited_for(KEY)
        called: list[int] = []
        awaited.wait(KEY, lambda: called.append(0))
        assert wanted == [KEY]
        assert awaited.is_waited_for(KEY)
        await asyncio.sleep(0.4)
        awaited.wait(KEY, lambda: called.append(1))
        awaited.begin(KEY)
        assert wanted == [KEY], "once"
        assert abs(awaited.left_s(KEY) - 0.6) < 0.01
        awaited.end(KEY)
        await asyncio.sleep(0)
        assert called == [0, 1]

    run(scenario)


def test_a_takeover_that_begins_before_anybody_waits_begins_the_time_too() -> None:
    async def scenario(awaited: AwaitedPartitions) -> None:
        wanted: list[Key] = []
        awaited.on_wanted = wanted.append
        awaited.expect(KEY)
        await asyncio.sleep(5)
        awaited.begin(KEY)
        await asyncio.sleep(0.4)
        awaited.expect(KEY)  # once more in line, after a failure
        await awaited.settled(KEY)
        assert wanted == []
        assert awaited.left_s(KEY) == 0

    run(scenario)


def test_after_a_wait_in_vain_nobody_waits_for_what_is_in_line() -> None:
    async def scenario(awaited: AwaitedPartitions) -> None:
        loop = asyncio.get_running_loop()
        for key in (KEY, OTHER):
            awaited.expect(key)
        began_s = loop.time()
        await awaited.settled(KEY)
        assert abs(loop.time() - began_s - HOLD_S) < 0.01
        assert awaited.left_s(OTHER) == 0, "takeovers are slow"
        await asyncio.sleep(1.5 * HOLD_S)
        assert awaited.left_s(OTHER) == 0
        await asyncio.sleep(HOLD_S)
        assert awaited.left_s(OTHER) == HOLD_S

    run(scenario)


def test_a_request_without_time_does_not_keep_others_from_waiting() -> None:
    async def scenario(awaited: AwaitedPartitions) -> None:
        for key in (KEY, OTHER):
            awaited.expect(key)
        called: list[str] = []
        awaited.wait(KEY, lambda: called.append("short"), 0.2)
        await asyncio.sleep(0.3)
        assert called == ["short"]
        await awaited.settled((UUID(int=8), 0))  # which is not awaited: at once
        assert awaited.left_s(OTHER) == HOLD_S

    run(scenario)
