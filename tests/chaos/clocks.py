"""Wall clocks that jump: a library in front of a program, told by a file that changes.

Only the wall clock is faked (`clock.c`, compiled when a run begins). The monotonic clock goes on
as it does on a real machine whose administrator, or whose NTP daemon, sets the time.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("clock.c")
_SECONDS: Final = struct.Struct("=q")


class Clocks:
    """One clock for each name."""

    def __init__(self, folder: Path) -> None:
        """Raises NoClocks."""
        self._folder = folder
        self._library = folder / "clock.so"
        compiler = shutil.which("cc")
        if compiler is None:
            raise NoClocks("needs a C compiler, cc")
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE)]
        done = subprocess.run([*command, "-ldl"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoClocks(f"clock.c does not compile here: {done.stderr[-300:]}")
        self._try()

    def _try(self) -> None:
        program = "import time; time.sleep(0.01); print(time.time(), time.monotonic())"
        command = [*self.command("probe"), sys.executable, "-c", program]
        self.set("probe", 3600)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoClocks(f"programs do not run with it: {done.stderr[-300:]}")
        wall_s, monotonic_s = map(float, done.stdout.split())
        if abs(wall_s - time.time() - 3600) > 60 or abs(monotonic_s - time.monotonic()) > 60:
            raise NoClocks(f"fakes too little or too much here: {done.stdout}")

    def command(self, name: str) -> list[str]:
        """Return what to put before a command, so that it lives by the clock `name`."""
        self._path(name).write_bytes(_SECONDS.pack(0))
        return ["env", f"LD_PRELOAD={self._library}", f"CHAOS_CLOCK={self._path(name)}"]

    def set(self, name: str, ahead_s: int) -> None:
        """Let a clock be ahead of the true time, or behind it, from now on."""
        with self._path(name).open("r+b") as file:
            file.write(_SECONDS.pack(ahead_s))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.clock"


class NoClocks(Exception):
    """This machine cannot fake clocks; the message says why."""
