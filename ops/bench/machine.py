"""The machine a result was measured on: what it is, what it can do at best, how busy it was."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from ops.bench.peers import bookkeeper, kafka
from ops.bench.spread import percentile
from ops.java import find_java

ROOT: Final = Path(__file__).resolve().parent.parent.parent
LOAD_MAX: Final = 1.0
"""A one-minute load average above this makes a run no result."""
_SMALL_SYNCS: Final = 200
_SMALL_BYTES: Final = 4096
LARGE_SYNCS: Final = 64
_LARGE_BYTES: Final = 1 << 20
_COPIED_BYTES: Final = 64 << 20
_COPIES: Final = 5


def is_quiet(load_1_min: float) -> bool:
    """Tell whether a machine is idle enough to measure on."""
    return load_1_min <= LOAD_MAX


def cpu_model(cpuinfo: str) -> str:
    """Return the processor's name out of the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def memory_bytes(meminfo: str, name: str = "MemTotal") -> int:
    """Return the machine's memory, or another figure, of /proc/meminfo; 0 if it does not say."""
    for line in meminfo.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def disk_syncs(folder: Path) -> dict[str, float]:
    """Append to a file of the folder and sync, small and large: what durable writes cost."""
    small_s = sorted(synced_append_s(folder, _SMALL_BYTES, _SMALL_SYNCS))
    large_s = synced_append_s(folder, _LARGE_BYTES, LARGE_SYNCS)
    return {
        "sync of 4 KiB, median ms": statistics.median(small_s) * 1e3,
        "sync of 4 KiB, p99 ms": percentile(small_s, 0.99) * 1e3,
        "synced writes of 1 MiB MB/s": _LARGE_BYTES / statistics.median(large_s) / 1e6,
    }


def synced_append_s(folder: Path, size: int, count: int) -> list[float]:
    """Append to a new file of the folder and sync, again and again; return the seconds of each."""
    block = os.urandom(size)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return [_append(file.fileno(), block) for _ in range(count)]


def _append(descriptor: int, block: bytes) -> float:
    began_s = time.perf_counter()
    os.write(descriptor, block)
    os.fdatasync(descriptor)
    return time.perf_counter() - began_s


def memory_copy_mb_per_s() -> float:
    """Copy memory in one thread; return the median MB/s."""
    source = bytes(_COPIED_BYTES)
    target = bytearray(_COPIED_BYTES)
    took_s = []
    for _ in range(_COPIES):
        began_s = time.perf_counter()
        target[:] = source
        took_s.append(time.perf_counter() - began_s)
    return _COPIED_BYTES / statistics.median(took_s) / 1e6


def facts(folder: Path) -> dict[str, Any]:
    """Return everything that a reader of results must know. `folder` is on the measured disk."""
    return {
        "processor": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": os.cpu_count(),
        "memory bytes": memory_bytes(Path("/proc/meminfo").read_text()),
        "kernel": platform.release(),
        "load average at start": list(os.getloadavg()),
        "limits": {**disk_syncs(folder), "memory copy MB/s": memory_copy_mb_per_s()},
        "versions": {
            "quire": f"{importlib.metadata.version('quire')}, commit {commit()}",
            "python": platform.python_version(),
            "java": find_java().version,
            "librdkafka": confluent_kafka.libversion()[0],
            "kafka": kafka.version(),
            "bookkeeper": bookkeeper.version(),
        },
    }


def commit(root: Path = ROOT) -> str:
    """Return the last commit that changed code, with "-dirty" when code differs from it.

    Results and documents are no code: writing down what was measured changes nothing measured.
    """
    code = ("--", ".", ":!ops/bench/results", ":!*.md")
    last = _git(root, "log", "-1", "--format=%h", *code)
    if not last:
        return "unknown"
    return f"{last}-dirty" if _git(root, "status", "--porcelain", *code) else last


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints; nothing when there is no git, or no repository."""
    try:
        done = subprocess.run(  # noqa: S603  (fixed arguments)
            ["git", *arguments],  # noqa: S607  (git is on PATH or it is unknown)
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
