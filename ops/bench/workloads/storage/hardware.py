"""What this machine can do at best: the limits that results stand beside.

Nothing of Quire or of a peer runs. The disk is the one that systems are measured on.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import crc32c

from ops.bench import machine
from ops.bench.figures import Figure, Run, named
from ops.bench.peers.system import REPLICAS, Measurable

NAME: Final = "hardware"
_BLOCK_BYTES: Final = 1 << 20
_PING_BYTES: Final = 100
_PINGS: Final = 5_000
_CHECKS: Final = 5
_TIMEOUT_S: Final = 120.0

_processes = multiprocessing.get_context("spawn")


def _write(folder: str, barrier: Any, took_s: Any) -> None:
    barrier.wait()
    took_s.put(machine.synced_append_s(Path(folder), _BLOCK_BYTES, machine.LARGE_SYNCS))


def synced_by_several_mb_per_s(folder: Path, writers: int) -> float:
    """Let processes append 1 MiB and sync, each to its file; return the MB/s of all."""
    barrier, took_s = _processes.Barrier(writers), _processes.Queue()
    started = [
        _processes.Process(target=_write, args=(str(folder), barrier, took_s))
        for _ in range(writers)
    ]
    for process in started:
        process.start()
    spent_s: list[float] = [sum(took_s.get(timeout=_TIMEOUT_S)) for _ in started]
    for process in started:
        process.join()
    return float(writers) * machine.LARGE_SYNCS * _BLOCK_BYTES / max(spent_s) / 1e6


def _serve(port: Any, size: int) -> None:
    """Take one connection, read `size` bytes, then send everything back that comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port.put(listening.getsockname()[1])
        connection, _ = listening.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(_BLOCK_BYTES)
        while size:
            size -= connection.recv_into(buffer, min(size, _BLOCK_BYTES))
        connection.sendall(b"!")
        while data := connection.recv(_BLOCK_BYTES):
            connection.sendall(data)


def loopback(size: int) -> dict[str, float]:
    """Send `size` bytes to another process, then questions one by one; return the rates."""
    port = _processes.Queue()
    process = _processes.Process(target=_serve, args=(port, size))
    process.start()
    with socket.create_connection(("127.0.0.1", port.get(timeout=_TIMEOUT_S))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        block = bytes(_BLOCK_BYTES)
        began_s = time.perf_counter()
        for _ in range(size // _BLOCK_BYTES):
            connection.sendall(block)
        connection.recv(1)
        copied_s = time.perf_counter() - began_s
        began_s = time.perf_counter()
        for _ in range(_PINGS):
            connection.sendall(block[:_PING_BYTES])
            connection.recv(_BLOCK_BYTES)
        pinged_s = time.perf_counter() - began_s
    process.join()
    return {
        "loopback copy MB/s": size // _BLOCK_BYTES * _BLOCK_BYTES / copied_s / 1e6,
        "loopback questions and answers/s": _PINGS / pinged_s,
    }


def _rate_mb_per_s(size: int, work: Callable[[], object]) -> float:
    took_s = []
    for _ in range(_CHECKS):
        began_s = time.perf_counter()
        work()
        took_s.append(time.perf_counter() - began_s)
    return size / statistics.median(took_s) / 1e6


def limits(folder: Path, size: int) -> dict[str, float]:
    """Return every limit. `folder` lies on the measured disk."""
    block = bytes(_BLOCK_BYTES)
    return {
        **machine.disk_syncs(folder),
        f"synced writes of 1 MiB by {REPLICAS} at once MB/s": synced_by_several_mb_per_s(
            folder, REPLICAS
        ),
        **loopback(size),
        "memory copy MB/s": machine.memory_copy_mb_per_s(),
        "CRC-32C MB/s": _rate_mb_per_s(_BLOCK_BYTES, lambda: crc32c.crc32c(block)),
    }


async def measure(system: Measurable, run: Run) -> list[Figure]:
    """Measure every limit."""
    found = await asyncio.to_thread(limits, system.data_folder(), run.scale.limit_bytes)
    return named(NAME, found)
