"""Checks of the disk below a bookie's data directory: room, speed, and whether it keeps anything.

A bookie acknowledges only after `fdatasync`. On a file system in memory that call returns and
proves nothing; over a network it may prove little.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bookie.storage.disk import sync_data
from ops.doctor.findings import Finding, fine, trouble, warning

VOLATILE: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afpfs", "fuse.sshfs", "fuse.glusterfs"}
)
MOUNTS: Final = Path("/proc/mounts")
SYNC_COUNT: Final = 20
_BLOCK: Final = bytes(4096)
_SLOW_S: Final = 0.020
_TOO_SLOW_S: Final = 0.200
_GIB: Final = 1 << 30
_MOUNT_TIMEOUT_S: Final = 5.0


def check_space(
    path: Path, *, total: int, free: int, free_min: int, full_at: float, warn_at: float
) -> Finding:
    """`free_min` bytes, and parts of the disk from which a bookie warns and stops."""
    used = 1 - free / total if total else 1.0
    shown = f"the disk of {path} is {used:.0%} full, {free / _GIB:.1f} GiB are free"
    if free < free_min or used >= full_at:
        return trouble(
            "disk-space",
            shown,
            f"A bookie is read-only here: it wants {free_min / _GIB:.2f} GiB free and less than"
            f" {full_at:.0%} used. Make room, shorten retention, or add bookies.",
        )
    if used >= warn_at:
        return warning("disk-space", shown, "Shorten retention or add bookies before it is full.")
    return fine("disk-space", shown)


def check_file_system(path: Path, mounts: str) -> Finding:
    """`mounts` is what `read_mounts` returned; the longest mount point above `path` counts."""
    point, kind = max(_above(path, mounts), key=lambda row: len(row[0]), default=("", ""))
    if kind in VOLATILE:
        return trouble(
            "file-system",
            f"{path} is on {kind} ({point}): nothing on it survives a power cut",
            "Choose a directory on a real disk.",
        )
    if kind in REMOTE:
        return warning(
            "file-system",
            f"{path} is on {kind} ({point}), across a network",
            "Use a local disk: bookies replicate by themselves, and acknowledge after fdatasync.",
        )
    return fine("file-system", f"{path} is on {kind or 'an unknown file system'}")


def read_mounts() -> str:
    """Return what is mounted where, as /proc/mounts says it: DEVICE POINT KIND on each line.

    Without /proc (macOS) it is made of what `mount` prints; without either it is empty.
    """
    if MOUNTS.exists():
        return MOUNTS.read_text()
    program = shutil.which("mount")
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603  (the system's own, without arguments)
            [program], capture_output=True, text=True, timeout=_MOUNT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    rows = re.findall(r"^(.+) on (.+) \(([\w.]+)[,)]", done.stdout, re.MULTILINE)
    return "".join(" ".join(field.replace(" ", "\\040") for field in row) + "\n" for row in rows)


def _above(path: Path, mounts: str) -> Iterator[tuple[str, str]]:
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) >= 3:
            point = fields[1].replace("\\040", " ")
            if path == Path(point) or Path(point) in path.parents:
                yield point, fields[2]


def check_syncs(path: Path, durations_s: Sequence[float]) -> Finding:
    """How long small writes take to be durable; the median counts."""
    median_ms = statistics.median(durations_s) * 1000
    shown = f"fdatasync in {path} takes {median_ms:.1f} ms (median of {len(durations_s)})"
    advice = "Every acknowledgement waits for it: use an SSD that others do not share."
    if median_ms >= _TOO_SLOW_S * 1000:
        return trouble("disk-sync", shown, advice)
    if median_ms >= _SLOW_S * 1000:
        return warning("disk-sync", shown, advice)
    return fine("disk-sync", shown)


def measure_syncs(folder: Path, count: int = SYNC_COUNT) -> list[float]:
    """Write a block and make it durable, `count` times. Raises OSError."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(count):
            began_s = time.perf_counter()
            file.write(_BLOCK)
            file.flush()
            sync_data(file.fileno())
            took.append(time.perf_counter() - began_s)
    return took
