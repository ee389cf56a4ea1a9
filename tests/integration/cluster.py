"""Real processes for integration tests: a ZooKeeper server alone, and whole clusters.

Everything listens on free loopback ports and keeps its data where the test says. Every process
is on a leash (`ops/leash.py`), so nothing outlives the test run.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ops.child import LEASH
from ops.java import find_java
from ops.ports import pick_free
from ops.zookeeper import make_server

START_TIMEOUT_S = 60.0


def wait_until(
    condition: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S
) -> None:
    """Poll until `condition()`; fail naming what was awaited."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.02)


class RealZooKeeper:
    """A ZooKeeper server process of our own."""

    def __init__(self, folder: Path) -> None:
        self.port = pick_free(1)[0]
        self.log_path = folder / "zookeeper.log"
        self._child = make_server(
            find_java(), folder=folder, log_path=self.log_path, port=self.port
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *self._child.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self.answers, f"ZooKeeper, see {self.log_path}")

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                link.sendall(b"ruok")
                return link.recv(4) == b"imok"
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
