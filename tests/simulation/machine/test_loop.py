"""The simulated loop: time, order, process death, zombies, numbered objects, tripwires."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.machine.hosts import PROCESS, Host, SimClock
from tests.simulation.machine.loop import SimLoop, Stuck, Violation
from tests.simulation.machine.tripwires import Forbidden, armed


def make_loop(seed: int = 1, **options: Any) -> SimLoop:
    return SimLoop(random.Random(seed), **options)


def run(loop: SimLoop, main: Coroutine[Any, Any, Any]) -> Any:
    try:
        return loop.run_until_complete(main)
    finally:
        loop.dispose()


def test_time_jumps_to_the_next_timer() -> None:
    loop = make_loop()

    async def main() -> float:
        start = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - start

    assert run(loop, main()) == 3600


def test_timeouts_gather_and_task_groups_work() -> None:
    loop = make_loop()

    async def main() -> list[object]:
        seen: list[object] = []
        try:
            async with asyncio.timeout(2):
                await asyncio.sleep(5)
        except TimeoutError:
            seen.append("timeout")
        seen += await asyncio.gather(*(asyncio.sleep(n, n) for n in (3, 1, 2)))
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
        return seen

    assert run(loop, main()) == ["timeout", 3, 1, 2]


def processes(loop: SimLoop, *mains: Callable[[], Coroutine[Any, Any, Any]]) -> list[Host]:
    hosts = []
    for number, main in enumerate(mains):
        host = Host(f"h{number}", f"10.0.0.{number}")
        loop.start_process(host, main)
        hosts.append(host)
    return hosts


def test_each_process_is_first_in_first_out_and_processes_interleave() -> None:
    def once(seed: int) -> list[tuple[str, int]]:
        loop = make_loop(seed)
        order: list[tuple[str, int]] = []

        async def main() -> None:
            process = PROCESS.get()
            assert process is not None
            for number in range(20):
                loop.call_soon(order.append, (process.name, number))
            await asyncio.sleep(1)

        async def drive() -> None:
            processes(loop, main, main)
            await asyncio.sleep(2)

        run(loop, drive())
        return order

    order = once(1)
    for name in ("h0#1", "h1#1"):
        assert [n for who, n in order if who == name] == list(range(20))
    names = [who for who, _ in order]
    assert names != sorted(names)
    assert once(1) == order
    assert once(2) != order


def test_hostile_mode_shuffles_within_a_process() -> None:
    loop = make_loop(hostile=True)
    order: list[int] = []

    async def main() -> None:
        for number in range(20):
            loop.call_soon(order.append, number)
        await asyncio.sleep(1)

    run(loop, main())
    assert sorted(order) == list(range(20))
    assert order != list(range(20))


def test_a_killed_process_never_runs_again_and_no_finally_runs() -> None:
    loop = make_loop()
    seen: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            seen.append("finally")

    async def main() -> None:
        task = asyncio.create_task(child())
        loop.call_later(2, seen.append, "timer")
        try:
            await task
        finally:
            seen.append("main finally")

    async def drive() -> list[str]:
        (host,) = processes(loop, main)
        await asyncio.sleep(1)
        assert host.process is not None
        loop.kill(host.process)
        await asyncio.sleep(10)
        return list(seen)

    assert run(loop, drive()) == []


def test_a_paused_process_wakes_up_as_a_zombie_with_late_timers() -> None:
    loop = make_loop()
    ticks: list[float] = []

    async def main() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time() - 1000)

    async def drive() -> None:
        (host,) = processes(loop, main)
        process = host.process
        assert process is not None
        await asyncio.sleep(2.5)
        loop.pause(process)
        await asyncio.sleep(5)
        assert ticks == [1, 2]
        loop.resume(process)
        await asyncio.sleep(1.5)
        loop.kill(process)

    run(loop, drive())
    assert ticks == [1, 2, 7.5, 8.5]


def test_sets_of_tasks_and_futures_iterate_in_order_of_first_use() -> None:
    loop = make_loop()

    async def main() -> None:
        tasks = [asyncio.create_task(asyncio.sleep(1, number)) for number in range(50)]
        done, _ = await asyncio.wait(tasks)
        assert [task.result() for task in done] == list(range(50))
        futures = [loop.create_future() for _ in range(50)]
        assert list(dict.fromkeys(set(futures))) == futures

    run(loop, main())


def test_run_in_executor_answers_later_on_the_loop() -> None:
    loop = make_loop()
    main_thread = threading.get_ident()

    async def main() -> None:
        start = loop.time()
        assert await loop.run_in_executor(None, threading.get_ident) == main_thread
        assert loop.time() > start
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 / 0)

    run(loop, main())


def test_an_exception_that_nobody_handles_ends_the_schedule() -> None:
    loop = make_loop()

    async def drive() -> None:
        async def main() -> None:
            loop.call_soon(lambda: 1 / 0)
            await asyncio.sleep(5)

        processes(loop, main)
        await asyncio.sleep(10)

    with pytest.raises(RuntimeError):
        run(loop, drive())
    assert isinstance(loop.failure, Violation)
    assert "UNHANDLED in h0#1" in str(loop.failure)


def test_a_schedule_without_events_or_without_end_is_stuck() -> None:
    loop = make_loop()
    with pytest.raises(Stuck):
        run(loop, _forever(loop))

    async def spin() -> None:
        loop = asyncio.get_running_loop()
        while not loop.is_closed():  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(Stuck):
        run(make_loop(steps_max=1000), spin())


async def _forever(loop: SimLoop) -> None:
    await loop.create_future()


def test_cancelled_timers_do_not_pile_up() -> None:
    loop = make_loop()

    async def main() -> None:
        for _ in range(5000):
            loop.call_later(100, print).cancel()
        assert len(loop._heap) < 1000
        await asyncio.sleep(1)

    run(loop, main())


def test_wall_clocks_differ_by_host() -> None:
    loop = make_loop()
    host = Host("h", "10.0.0.1")
    clock = SimClock(loop, host)
    before = clock.now_ms()
    host.wall_offset_ms = -5000
    assert clock.now_ms() == before - 5000
    loop.dispose()


@pytest.mark.parametrize(
    "call",
    [
        time.monotonic,
        time.time,
        random.random,
        uuid.uuid4,
        lambda: os.urandom(4),
        lambda: threading.Thread(target=print).start(),
        lambda: open("/dev/null"),  # noqa: SIM115
    ],
)
def test_tripwires_catch_leaks_inside_a_process_only(call: Callable[[], object]) -> None:
    loop = make_loop()
    caught: list[BaseException] = []
    # The table patches module attributes, so look the function up by name at call time.
    owner, name = getattr(call, "__module__", None), getattr(call, "__name__", "")
    late = {"time": time, "uuid": uuid}.get(str(owner))

    async def main() -> None:
        try:
            if late is not None:
                getattr(late, name)()
            elif name == "random":
                random.random()
            else:
                call()
        except Forbidden as error:
            caught.append(error)

    async def drive() -> None:
        time.time()
        random.random()
        processes(loop, main)
        await asyncio.sleep(1)

    with armed(loop.time):
        run(loop, drive())
    assert len(caught) == 1
