"""One supervised process: started on a leash, logged to a file, stopped in bounded time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

LEASH: Final = Path(__file__).with_name("leash.py")
LOG_BYTES_MAX: Final = 32 * 1024 * 1024
"""A log that is larger when its process starts is set aside as `<name>.log.1`."""


class Child:
    """A process and its successors under one name. Not for concurrent use."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_path: Path,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.command = list(command)
        self._environ = dict(environ)
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Process id of the latest start; 0 before the first."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process. Its output goes to the log file, its own session keeps Ctrl-C away
        from it, and its leash ends it with us. Call from the main thread."""
        if self.log_path.exists() and self.log_path.stat().st_size > LOG_BYTES_MAX:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,
            )

    async def wait(self) -> str:
        """Wait for the end of the process and say how it ended: "exit code 1", "SIGKILL"."""
        assert self._process is not None
        return describe_exit(await self._process.wait())

    def send(self, signal_number: int) -> None:
        """Send a signal if the process still runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal_number)

    async def stop(self, timeout_s: float) -> bool:
        """Ask the process to end, insist after `timeout_s`; True if it ended by itself."""
        if not self.running:
            return True
        self.send(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), timeout_s)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self.wait()
            return False
        return True

    def last_lines(self, count: int = 8) -> list[str]:
        """Return the last lines that the latest process wrote."""
        try:
            with self.log_path.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, end - 16_384))
                return log.read().decode("utf-8", "replace").splitlines()[-count:]
        except OSError:
            return []


def describe_exit(returncode: int) -> str:
    """Turn a return code into words."""
    if returncode < 0:
        return signal.Signals(-returncode).name
    return f"exit code {returncode}"
