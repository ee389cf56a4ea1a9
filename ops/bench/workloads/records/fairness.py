"""One partition that is written as fast as it goes, beside many with a record a second each.

What the busy one does to the latency of the others' acknowledgements: measured alone first, then
beside it. Everything runs on one machine, the busy one's producer as well, and keeps its processors
busy: so two processes that have nothing to do with the system send each other as much as a record
has meanwhile. What an answer takes there is what a way from process to process and back takes on
such a machine, and a record has several of those.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

from ops.bench import topics
from ops.bench.figures import Figure, Run, named
from ops.bench.load.channel import LoadProcess
from ops.bench.load.latency import latencies_ms
from ops.bench.peers.system import System
from ops.bench.workloads.records.filling import warm_up

_QUIET: Final = "quiet"
_BUSY: Final = "busy"
_VALUE_BYTES: Final = 1024
_INTERVAL_S: Final = 1.0
_SETTINGS: Final = {"linger.ms": 5, "batch.size": 1 << 20, "batch.num.messages": 1_000_000}
_ASK_EVERY_S: Final = 0.01
_TIMEOUT_S: Final = 120.0

_processes = multiprocessing.get_context("spawn")


def _answer(port: Any) -> None:
    """Send back what comes on one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port.put(listening.getsockname()[1])
        connection, _ = listening.accept()
    with connection:
        while data := connection.recv(_VALUE_BYTES):
            connection.sendall(data)


def _ask(port: int, is_over: Any, arrivals: Any) -> None:
    """Send a record's bytes again and again, and wait until they are back: (sent s, ms)."""
    found: list[tuple[float, float]] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        arrivals.put(None)  # it begins
        while not is_over.wait(_ASK_EVERY_S):
            sent_s, left = time.monotonic(), _VALUE_BYTES
            connection.sendall(bytes(_VALUE_BYTES))
            while left:
                left -= len(connection.recv(left))
            found.append((sent_s, (time.monotonic() - sent_s) * 1e3))
    arrivals.put(found)


@asynccontextmanager
async def _echo(arrivals: list[tuple[float, float]]) -> AsyncIterator[None]:
    """Let two processes talk meanwhile; what that took is in `arrivals` at the end."""
    port, found, is_over = _processes.Queue(), _processes.Queue(), _processes.Event()
    answering = _processes.Process(target=_answer, args=(port,), daemon=True)
    answering.start()
    number = await asyncio.to_thread(port.get, timeout=_TIMEOUT_S)
    asking = _processes.Process(target=_ask, args=(number, is_over, found), daemon=True)
    asking.start()
    try:
        # A busy machine takes longer to start it than a short run measures.
        await asyncio.to_thread(found.get, timeout=_TIMEOUT_S)
        yield
        is_over.set()
        arrivals += await asyncio.to_thread(found.get, timeout=_TIMEOUT_S)
    finally:
        for process in (asking, answering):
            process.kill()
            process.join()


async def _trickle(
    system: System, partitions: int, warm_up_s: float, meanwhile: Awaitable[Any]
) -> tuple[dict[str, float], dict[str, float], Any]:
    """Write to the quiet partitions until `meanwhile` is over; return latencies, those of the echo,
    and its result."""
    echoes: list[tuple[float, float]] = []
    async with LoadProcess(
        "trickle",
        servers=system.bootstrap_servers,
        topic=_QUIET,
        partitions=partitions,
        value_bytes=_VALUE_BYTES,
        interval_s=_INTERVAL_S,
    ) as writer:
        await writer.event("ready")
        async with _echo(echoes):
            writer.say("go")
            result = await meanwhile
            writer.say("stop")
        arrivals = (await writer.event("arrived"))["arrivals"]
    begin_s = min(due_s for due_s, _ in arrivals) + warm_up_s
    span = begin_s, float("inf")
    return latencies_ms(arrivals, *span), latencies_ms(echoes, *span), result


async def _busy(system: System, run: Run, seconds: float) -> float:
    """Produce to the busy partition for this long; return bytes/s."""
    async with LoadProcess(
        "produce",
        servers=system.bootstrap_servers,
        topic=_BUSY,
        partitions=1,
        value_bytes=_VALUE_BYTES,
        settings=_SETTINGS,
        outstanding_bytes_max=run.scale.outstanding_bytes_max,
        warm_up_s=run.scale.warm_up_s,
        measure_s=seconds,
    ) as load:
        await load.event("ready")
        load.say("go")
        await load.event("begin")
        end = await load.event("end")
        await load.event("done")
        return float(end["records"]) * _VALUE_BYTES / float(end["seconds"])


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure the quiet partitions alone, and beside the busy one."""
    scale = run.scale
    await warm_up(system, run, "fairness")
    await topics.create_all(system.bootstrap_servers, {_QUIET: scale.fairness_partitions, _BUSY: 1})
    seconds = scale.warm_up_s + scale.fairness_s
    await run.memory_filled()
    count = scale.fairness_partitions
    alone, echo_alone, _ = await _trickle(system, count, scale.warm_up_s, asyncio.sleep(seconds))
    beside, echo_beside, busy = await _trickle(
        system, count, scale.warm_up_s, _busy(system, run, scale.fairness_s)
    )
    return named(
        f"fairness, {count} partitions with a record a second each beside a busy one",
        {
            "p50 alone ms": alone["p50"],
            "p99 alone ms": alone["p99"],
            "p50 beside ms": beside["p50"],
            "p99 beside ms": beside["p99"],
            "p99 beside per p99 alone": beside["p99"] / alone["p99"],
            "busy MB/s": busy / 1e6,
            "echo p99 alone ms": echo_alone["p99"],
            "echo p99 beside ms": echo_beside["p99"],
        },
    )
