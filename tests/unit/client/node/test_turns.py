"""Turns of the loop: one piece of long work in each, in order, and nobody else waits for more."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import pytest

from client.node.turns import Turns
from client.wire.steps import STEP_ITEMS, Steps


def work(name: str, steps: int, log: list[str]) -> Steps[str]:
    for number in range(steps):
        log.append(f"{name}{number}")
        yield
    return name


async def test_between_two_steps_everybody_else_is_served() -> None:
    turns, log = Turns(), list[str]()

    async def others() -> None:
        for number in range(3):
            log.append(f"other{number}")
            await asyncio.sleep(0)

    found, _ = await asyncio.gather(turns.run(work("a", 3, log)), others())
    assert found == "a"
    at = [log.index(f"other{number}") for number in range(3)]
    steps = [log.index(f"a{number}") for number in range(3)]
    assert steps[0] < at[0] < steps[1] < steps[2]
    assert at[1] < steps[2]


async def test_one_turn_of_the_loop_has_one_step_whoever_takes_it() -> None:
    """Ten long requests delay everybody else no more than one does."""
    turns, log = Turns(), list[str]()
    tasks = [asyncio.ensure_future(turns.run(work(f"w{n}-", 4, log))) for n in range(10)]
    await asyncio.sleep(0)  # the first step is taken at once
    before = len(log)
    for passed in range(1, 12):
        await asyncio.sleep(0)
        assert len(log) - before <= passed
    await asyncio.gather(*tasks)
    assert turns.taken == 40


async def test_turns_are_taken_in_order_and_can_be_taken_back() -> None:
    turns, log = Turns(), list[str]()
    turns.on_turn(lambda: log.append("first"))
    cancel = turns.on_turn(lambda: log.append("never"))
    turns.on_turn(lambda: log.append("third"))
    cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert log == ["first", "third"]
    cancel()


async def test_who_is_cancelled_takes_no_further_step() -> None:
    turns, log = Turns(), list[str]()
    task = asyncio.ensure_future(turns.run(work("a", 5, log)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turns.next()
    assert log == ["a0"]


async def test_what_goes_wrong_in_a_step_is_its_own() -> None:
    def broken() -> Steps[None]:
        yield
        raise ValueError("damaged")

    turns = Turns()
    with pytest.raises(ValueError, match="damaged"):
        await turns.run(broken())
    assert await turns.run(work("a", 2, [])) == "a"


async def test_a_long_list_takes_a_turn_now_and_then() -> None:
    turns = Turns()
    pace = turns.pace()
    for _ in range(STEP_ITEMS - 1):
        await pace.item()
    assert turns.taken == 0
    for _ in range(2 * STEP_ITEMS):
        await pace.item()
    assert turns.taken == 2


async def test_who_keeps_what_takes_its_turn_back_is_not_kept_alive_by_it() -> None:
    """Or it would wait for the collector of cycles, with all that a large request has made."""

    class Work:
        def __init__(self, turns: Turns) -> None:
            self.take_back = turns.on_turn(self.go)

        def go(self) -> None:
            pass

    turns = Turns()
    gone = weakref.ref(Work(turns))
    gc.disable()
    try:
        for _ in range(3):
            await asyncio.sleep(0)
        assert turns.taken == 1
        assert gone() is None
    finally:
        gc.enable()


async def test_a_few_short_calls_in_a_turn() -> None:
    turns, called = Turns(3), list[int]()
    take_back = [turns.on_turn(partial(called.append, number)) for number in range(6)]
    for taken_back in take_back[:2]:
        taken_back()
    turns.on_turn(lambda: take_back_last())
    take_back_last = turns.on_turn(partial(called.append, 7))
    seen = []
    for _ in range(4):
        await asyncio.sleep(0)
        seen.append(list(called))
    assert [2, 3, 4] in seen
    assert called == [2, 3, 4, 5], "the last one was taken back in its own turn"
    assert turns.taken == 5


async def test_a_call_that_fails_loses_no_other() -> None:
    turns, called = Turns(3), list[int]()
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    turns.on_turn(lambda: called.append(1 // 0))
    for number in range(5):
        turns.on_turn(partial(called.append, number))
    for _ in range(5):
        await asyncio.sleep(0)
    assert called == [0, 1, 2, 3, 4]
    assert [type(each) for each in failures] == [ZeroDivisionError]
