"""Which TCP ports are free, and which process uses those that are not."""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

_LISTENING: Final = "0A"
_PICK_FROM: Final = 15_000
_PICK_TO: Final = 32_000
_PROC: Final = Path("/proc")
_LSOF_TIMEOUT_S: Final = 5.0


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether a server could listen on the port now. Raises OSError for other troubles."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # With this option only a live listener is in the way, not an old connection's TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def pick_free(count: int) -> list[int]:
    """Return `count` different ports that were free a moment ago.

    They are below those that systems hand to outgoing connections (from 32768 on Linux, 49152
    elsewhere), so that a port stays free until somebody listens on it on purpose.
    """
    rng = random.SystemRandom()
    found: set[int] = set()
    while len(found) < count:
        port = rng.randrange(_PICK_FROM, _PICK_TO)
        if is_free(port):
            found.add(port)
    return sorted(found)


def pick_free_runs(*counts: int) -> list[int]:
    """Return the first port of each run of consecutive ports; all were free a moment ago.

    The runs have no port in common. `counts`: how long each is.
    """
    taken: set[int] = set()
    firsts: list[int] = []
    for count in counts:
        run = range(0)
        while not run or not taken.isdisjoint(run) or not all(map(is_free, run)):
            first = pick_free(1)[0]
            run = range(first, first + count)
        taken.update(run)
        firsts.append(run.start)
    return firsts


def listener(port: int) -> str | None:
    """Name the program that listens on a port, like `java (pid 4711)`; None if unknown.

    Linux shows it in /proc, for processes of the same user (or all, to root); elsewhere the
    program `lsof` tells, where it is installed (macOS has it).
    """
    if not (_PROC / "net").exists():
        return _listener_by_lsof(port)
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    for process in _PROC.iterdir():
        if process.name.isdigit() and _holds(process, inodes):
            command = _command_name(process)
            return f"{command} (pid {process.name})"
    return None


def _listening_inodes(port: int) -> list[str]:
    inodes: list[str] = []
    for table in ("net/tcp", "net/tcp6"):
        try:
            rows = (_PROC / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.append(fields[9])
    return inodes


def _holds(process: Path, inodes: list[str]) -> bool:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    try:
        return any(os.readlink(fd) in wanted for fd in (process / "fd").iterdir())
    except OSError:
        return False


def _command_name(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return "a program"
    return _shown(words)


def _listener_by_lsof(port: int) -> str | None:
    pids = _output_of("lsof", "-nP", "-t", f"-iTCP:{port}", "-sTCP:LISTEN").split()
    if not pids:
        return None
    words = _output_of("ps", "-o", "command=", "-p", pids[0]).split()
    return f"{_shown(words or [''])} (pid {pids[0]})"


def _output_of(program: str, *arguments: str) -> str:
    """Return what a program of the system prints; nothing if it is not there, or takes too long."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603  (lsof and ps, with numbers of ours)
            [path, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LSOF_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _shown(words: list[str]) -> str:
    """Name a program by its command line."""
    name = Path(words[0]).name
    if name.startswith("python") and len(words) > 2 and words[1] == "-m":
        return f"{name} -m {words[2]}"
    return name or "a program"
