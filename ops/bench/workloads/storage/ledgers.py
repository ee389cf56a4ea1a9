"""Ledgers alone: Quire's client and BookKeeper's own, each on both kinds of bookies.

A turn measures both clients on the bookies of one kind. The rows compare bookies under the same
client, and the two systems with the client of their own.
"""

from __future__ import annotations

from typing import Any, Final

from ops.bench.figures import Figure, Run, named, peak_bytes
from ops.bench.load.channel import LoadProcess
from ops.bench.load.metered import metered
from ops.bench.peers import bookkeeper
from ops.bench.peers.system import REPLICAS, BookieSystem

NAME: Final = "ledgers"
BOOKIES: Final = 3
LEDGERS: Final = 4
ACKS: Final = 2
OURS: Final = "our client"
JAVAS: Final = "Java client"
OWN: Final = "own client"


def label(entry_bytes: int, client: str) -> str:
    """Name one row."""
    return f"ledgers, {entry_bytes // 1024} KiB entries, {client}"


def clients() -> list[str]:
    """Return the clients there are: Java's only with its jars."""
    return [OURS, JAVAS] if bookkeeper.is_installed() else [OURS]


async def add(system: BookieSystem, run: Run, client: str, entry_bytes: int) -> dict[str, float]:
    """Let a client add entries to a few ledgers as fast as it goes; return the figures."""
    arguments: dict[str, Any] = {
        "zookeeper": system.zookeeper,
        "entry_bytes": entry_bytes,
        "ledgers": LEDGERS,
        "in_flight": run.scale.in_flight(entry_bytes),
        "copies": REPLICAS,
        "acks": ACKS,
        "warm_up_s": run.scale.ledger_warm_up_s,
        "measure_s": run.scale.measure_s,
    }
    load = (
        LoadProcess("ledgers", **arguments)
        if client == OURS
        else LoadProcess.foreign(bookkeeper.load_command(), **arguments)
    )
    async with load:
        await load.event("ready")
        load.say("go")
        end, spent = await metered(load, system.bookie_pids())
        await load.event("done")
    size = end["adds"] * entry_bytes
    bookie_cpu_s = max(spent.cpu_s, 0.01)
    return {
        "adds/s": end["adds"] / end["seconds"],
        "MB/s": size / end["seconds"] / 1e6,
        "p50 ms": end["p50_ms"],
        "p99 ms": end["p99_ms"],
        "bookie CPU s per GB": bookie_cpu_s / size * 1e9,
        "client CPU s per GB": end["cpu_s"] / size * 1e9,
        "MB per bookie CPU s": size / bookie_cpu_s / 1e6,
        "disk bytes per byte and replica": spent.written_bytes / size / REPLICAS,
    }


async def measure(system: BookieSystem, run: Run) -> list[Figure]:
    """Measure each client with each size of entries."""
    own = JAVAS if system.about.name == bookkeeper.NAME else OURS
    figures: list[Figure] = []
    for entry_bytes in run.scale.ledger_entry_bytes:
        for client in clients():
            await run.memory_filled()
            found = await add(system, run, client, entry_bytes)
            figures += named(label(entry_bytes, client), found)
            if client == own:
                figures += named(label(entry_bytes, OWN), found)
    return [*figures, Figure(NAME, "peak memory MB", peak_bytes(system) / 1e6)]
