"""What every program shows of itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import ProcessCollector

from client import callbacks
from client.metadata.memory import MemoryCluster
from client.node import background
from client.node.exposition import Exposition, table
from client.node.process_metrics import ROWS, LoopLag, LoopStall, provide_process
from tests.fakes.scrape import parse
from tests.fakes.virtual_time import run


def test_interruptions_and_expired_sessions_are_counted() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(reconnect_delay_s=0.0)
        store = cluster.session()
        made = Exposition(table(ROWS))
        provide_process(made, "broker", store)
        found = parse(made.exposition())
        assert found["quire_metadata_connected"] == 1
        assert found["quire_metadata_unreadable_nodes"] == 0
        store.unreadable.note("/quire/topics/t", ValueError("no JSON"))
        assert parse(made.exposition())["quire_metadata_unreadable_nodes"] == 1
        assert any(name.startswith('quire_info{program="broker",version="') for name in found)
        cluster.suspend(store)
        await asyncio.sleep(1)
        assert parse(made.exposition())["quire_metadata_connected"] == 0
        cluster.resume(store)
        await asyncio.sleep(1)
        cluster.expire(store)
        await asyncio.sleep(1)
        found = parse(made.exposition())
        assert found["quire_metadata_connected"] == 1
        assert found["quire_metadata_interruptions_total"] == 2
        assert found["quire_metadata_sessions_expired_total"] == 1

    run(scenario())


def test_failures_of_tasks_are_shown_by_kind() -> None:
    made = Exposition(table(ROWS))
    provide_process(made, "broker", MemoryCluster().session())
    name = 'quire_task_failures_total{task="shown"}'
    assert name not in parse(made.exposition())
    background.count_failure("shown of topic-1")
    background.count_failure("shown of topic-2")
    assert parse(made.exposition())[name] == 2


def test_a_late_loop_shows() -> None:
    async def scenario() -> None:
        made = Exposition(table(ROWS))
        now = [0.0]
        lag = LoopLag(made, lambda: now[0])
        lag.start()
        for step_s in (1.0, 1.75):
            now[0] += step_s
            await asyncio.sleep(1.0)
        await asyncio.sleep(0)
        lag.close()
        found = parse(made.exposition())
        assert found["quire_loop_lag_seconds_count"] == 2
        assert found["quire_loop_lag_seconds_sum"] == 0.75

    run(scenario())


def test_the_longest_stall_shows_for_a_window_or_two() -> None:
    """However short it was beside a sample a second: it is what loses leases."""

    async def scenario() -> None:
        made = Exposition(table(ROWS))
        now = [0.0]
        stall = LoopStall(made, lambda: now[0])
        stall.start()

        async def shown_after(stall_s: float) -> float:
            """The tick comes, so much later than it should."""
            now[0] += 1 / 16 + stall_s
            await asyncio.sleep(1 / 16)
            await asyncio.sleep(0)
            return parse(made.exposition())["quire_loop_stall_seconds"]

        assert await shown_after(0.0) == 0
        assert await shown_after(2.0) == 2.0
        assert await shown_after(0.5) == 2.0
        for window, expected in ((1, 2.0), (2, 0.0)):
            now[0] = 61.0 * window
            stall._due_s = now[0] + 1 / 16
            assert await shown_after(0.0) == expected, window
        stall.close()

    run(scenario())


def test_a_stall_in_which_others_had_the_processor_shows_as_theirs() -> None:
    async def scenario() -> None:
        made = Exposition(table(ROWS))
        now, worked = [0.0], [0.0]
        stall = LoopStall(made, lambda: now[0], lambda: worked[0])
        stall.start()

        async def shown_after(stall_s: float, worked_s: float) -> tuple[float, float]:
            now[0] += 1 / 16 + stall_s
            worked[0] += worked_s
            await asyncio.sleep(1 / 16)
            await asyncio.sleep(0)
            found = parse(made.exposition())
            return found["quire_loop_stall_seconds"], found["quire_loop_stall_cpu_seconds"]

        assert await shown_after(0.0, 0.0625) == (0, 0), "busy, but never late"
        assert await shown_after(2.0, 0.25) == (2, 0.25)
        assert await shown_after(0.5, 0.5) == (2, 0.5)
        assert await shown_after(0.5, 0.5625) == (2, 0.5), "no more than it was late"
        stall.close()

    run(scenario())


def test_without_proc_the_process_has_no_metrics_and_the_rest_is_shown(tmp_path: Path) -> None:
    made = Exposition(table(ROWS))
    provide_process(made, "broker", MemoryCluster().session())
    made.add_collector(ProcessCollector(proc=str(tmp_path / "absent"), registry=None))
    found = parse(made.exposition())
    assert found["quire_metadata_connected"] == 1
    assert not [name for name in found if name.startswith("process_")]


def test_callbacks_that_raise_are_counted_from_zero_by_kind() -> None:
    async def scenario() -> None:
        made = Exposition(table(ROWS))
        provide_process(made, "broker", MemoryCluster().session())
        before = parse(made.exposition())
        for kind in callbacks.Kind:
            assert f'quire_callback_failures_total{{kind="{kind.value}"}}' in before
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        callbacks.failed(callbacks.Kind.ADD_DONE, ValueError("a bug"))
        name = 'quire_callback_failures_total{kind="add_done"}'
        assert parse(made.exposition())[name] == before[name] + 1

    run(scenario())
