"""CPU time, memory and disk writes of running processes, read from /proc.

A tree's time includes that of children which have ended and were waited for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")
# Fields of /proc/<pid>/stat behind the command's name.
_PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 1, 11, 12, 13, 14


def cpu_s(pids: Iterable[int]) -> float:
    """Return user and system seconds of some processes, without their children."""
    return sum(sum(_numbers(pid, (_USER, _SYSTEM))) for pid in pids) / _TICKS_PER_S


def user_and_kernel_s(pid: int) -> tuple[float, float]:
    """Return the seconds of a process in its own code and in the kernel; zeros if it is gone."""
    user, system = _numbers(pid, (_USER, _SYSTEM)) or (0, 0)
    return user / _TICKS_PER_S, system / _TICKS_PER_S


def tree_cpu_s(root: int) -> float:
    """Return the seconds of a process and all below it, past and present."""
    fields = (_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM)
    return sum(sum(_numbers(pid, fields)) for pid in tree(root)) / _TICKS_PER_S


def tree(root: int) -> list[int]:
    """Return a process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            for parent in _numbers(int(entry.name), (_PARENT,)):
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def resident_bytes_max(pid: int) -> int:
    """Return the most memory a process ever had; 0 if it is gone."""
    return _memory(pid, "VmHWM:")


def resident_bytes(pid: int) -> int:
    """Return the memory a process has resident now; 0 if it is gone."""
    return _memory(pid, "VmRSS:")


def _memory(pid: int, field: str) -> int:
    try:
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def written_bytes(pids: Iterable[int]) -> int:
    """Return the bytes that some processes caused to be written to disk, without their children.

    The kernel counts a page when it becomes dirty (`write_bytes` of /proc/PID/io), so what waits in
    the page cache is in it, and what a file loses before it was written is taken off
    (`cancelled_write_bytes`). A process that is gone counts 0.
    """
    return sum(
        counters.get("write_bytes", 0) - counters.get("cancelled_write_bytes", 0)
        for counters in map(_io, pids)
    )


def _io(pid: int) -> dict[str, int]:
    try:
        lines = (_PROC / str(pid) / "io").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":") for line in lines)
    return {name: int(value) for name, value in pairs}


def command_line(pid: int) -> str:
    """Return a process's command line; empty if it is gone."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _numbers(pid: int, fields: Iterable[int]) -> list[int]:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    values = text.rpartition(")")[2].split()
    return [int(values[field]) for field in fields]
