"""Wall clocks that jump: libfaketime in front of a program, told by a file that changes.

Only the wall clock is faked. The monotonic clock goes on as it does on a real machine whose
administrator, or whose NTP daemon, sets the time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_LIBRARIES: Final = "*/faketime/libfaketimeMT.so.1"
_CACHE_S: Final = 1
"""How often a program looks at its file."""
_SHARED: Final = Path("/dev/shm")


class Clocks:
    """One clock for each name."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._folder = folder
        self._library = library

    def command(self, name: str) -> list[str]:
        """Return what to put before a command, so that it lives by the clock `name`."""
        self.set(name, 0)
        return [
            "env",
            f"LD_PRELOAD={self._library}",
            f"FAKETIME_TIMESTAMP_FILE={self._path(name)}",
            f"FAKETIME_CACHE_DURATION={_CACHE_S}",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "NO_FAKE_STAT=1",
        ]

    def set(self, name: str, ahead_s: int) -> None:
        """Let a clock be ahead of the true time, or behind it."""
        path = self._path(name)
        path.with_suffix(".new").write_text(f"{ahead_s:+d}\n")
        path.with_suffix(".new").replace(path)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.clock"


def find_clocks(folder: Path) -> Clocks | str:
    """Return clocks that keep their files in `folder`, or why there are none on this machine."""
    libraries = sorted(Path("/usr/lib").glob(_LIBRARIES))
    if not libraries:
        return "libfaketime is not installed"
    clocks = Clocks(folder, libraries[0])
    program = "import time; print(time.time(), time.monotonic())"
    command = [*clocks.command("probe"), sys.executable, "-c", program]
    clocks.set("probe", 3600)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"libfaketime does not work here: {done.stderr[-200:]}"
    wall_s, monotonic_s = map(float, done.stdout.split())
    if abs(wall_s - time.time() - 3600) > 60 or abs(monotonic_s - time.monotonic()) > 60:
        return f"libfaketime fakes too little or too much here: {done.stdout}"
    return clocks


def clean_up_after(pid: int) -> None:
    """Remove what libfaketime leaves of a process that was killed."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        (_SHARED / name).unlink(missing_ok=True)
