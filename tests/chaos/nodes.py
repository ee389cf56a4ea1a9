"""Processes that can be killed, paused, asked to stop and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ops.child import LEASH
from tests.integration.cluster import ROOT, wait_until

STOP_TIMEOUT_S = 20.0


class Node:
    """One process of the cluster; `serves` tells whether it is of use."""

    def __init__(
        self, name: str, command: Sequence[str], log_path: Path, serves: Callable[[], bool]
    ) -> None:
        self.name = name
        self.serves = serves
        self.is_paused = False
        self.is_preferred = False
        """Whether it should run: one that ended by itself is started again."""
        self._command = [*command]
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; the node runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, if it does not run."""
        self.is_preferred = True
        if self.is_running:
            return
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *self._command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.is_paused = False

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.is_preferred = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.is_paused = False

    def stop(self) -> float:
        """SIGTERM, as an operator would; return how many seconds it took."""
        self.is_preferred = False
        began_s = time.monotonic()
        if self._process is not None and self.is_running:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return time.monotonic() - began_s

    def pause(self) -> None:
        """SIGSTOP: a zombie that may wake up."""
        if self.is_running:
            os.kill(self.pid, signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        if self.is_paused and self.is_running:
            os.kill(self.pid, signal.SIGCONT)
        self.is_paused = False

    def wait_until_it_serves(self, timeout_s: float) -> None:
        """Raises AssertionError naming the node."""
        wait_until(self.serves, f"{self.name} to serve, see {self._log_path}", timeout_s)
