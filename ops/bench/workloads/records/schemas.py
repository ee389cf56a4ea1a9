"""A schema registry on the brokers: questions about the newest state, twenty at a time, and schemas
that it has not seen.

The registry is the same on every system; what differs is how soon brokers tell it where its topic
ends, and commit what it writes. A question about the newest version has to see what other
registries wrote, so it waits for a look at the topic's end; those who wait share one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from ops.bench.figures import Figure, Run, named
from ops.bench.peers.system import PeerError, System
from ops.bench.spread import percentile
from ops.ports import pick_free

AT_ONCE: Final = 20
_PATIENCE_S: Final = 60.0
_AVRO: Final = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}

Ask = Callable[[str, str, Any], Awaitable[Any]]


@asynccontextmanager
async def _registry(servers: str) -> AsyncIterator[Ask]:
    """Run a registry on the brokers; yield what asks it. Raises PeerError if it does not start."""
    port = pick_free(1)[0]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.cli.main", "schemas"),
        *("--port", str(port), "-b", servers),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            await _ready(session)

            async def ask(method: str, path: str, body: Any = None) -> Any:
                async with session.request(method, path, json=body) as answer:
                    if answer.status != 200:
                        raise PeerError(f"{method} {path}: {await answer.text()}")
                    return await answer.json(content_type=None)

            yield ask
    finally:
        process.terminate()
        await process.wait()


async def _ready(session: aiohttp.ClientSession) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            async with session.get("/readyz") as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise PeerError("the schema registry did not start")


async def _timed(asked: Awaitable[Any]) -> float:
    """Return how many milliseconds an answer took."""
    began_s = time.perf_counter()
    await asked
    return (time.perf_counter() - began_s) * 1000


def _protobuf(number: int) -> dict[str, Any]:
    """Return a schema that was not seen before; it adds a field to an earlier one."""
    fields = "".join(f" string f{n} = {n};" for n in range(1, number + 2))
    text = f'syntax = "proto3"; message Order {{{fields} }}'
    return {"schemaType": "PROTOBUF", "schema": text}


def _figures(workload: str, taken_ms: list[float]) -> list[Figure]:
    ordered = sorted(taken_ms)
    return named(
        workload, {"p50 ms": percentile(ordered, 0.5), "p99 ms": percentile(ordered, 0.99)}
    )


async def _newest(ask: Ask, seconds: float) -> list[float]:
    """Return how long questions about the newest version took."""
    taken_ms: list[float] = []
    end_s = time.monotonic() + seconds

    async def client() -> None:
        while time.monotonic() < end_s:
            taken_ms.append(await _timed(ask("GET", "/subjects/orders/versions/latest", None)))

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return taken_ms


async def measure(system: System, run: Run) -> list[Figure]:
    """Measure questions of `AT_ONCE` clients, then comparing and registering Protobuf schemas."""
    scale = run.scale
    figures: list[Figure] = []
    async with _registry(system.bootstrap_servers) as ask:
        await ask("POST", "/subjects/orders/versions", {"schema": json.dumps(_AVRO)})
        await ask("POST", "/subjects/calls/versions", _protobuf(0))
        await _newest(ask, scale.warm_up_s)
        taken_ms = await _newest(ask, scale.measure_s)
        figures += _figures(f"registry: newest version, {AT_ONCE} at once", taken_ms)
        compared_ms, registered_ms = [], []
        for number in range(1, scale.new_schemas + 1):
            path = "/compatibility/subjects/calls/versions/latest"
            compared_ms.append(await _timed(ask("POST", path, _protobuf(2 * number - 1))))
            new = _protobuf(2 * number)
            registered_ms.append(await _timed(ask("POST", "/subjects/calls/versions", new)))
        figures += _figures("registry: new Protobuf schema compared", compared_ms)
        figures += _figures("registry: new Protobuf schema registered", registered_ms)
    return figures
