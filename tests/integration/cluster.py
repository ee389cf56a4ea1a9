"""Real processes for integration tests: a ZooKeeper server alone, and whole clusters.

Everything listens on free loopback ports and keeps its data where the test says. Every process
is on a leash (`ops/leash.py`), so nothing outlives the test run.
"""

import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ops.child import LEASH
from ops.java import find_java
from ops.ports import pick_free, pick_free_runs
from ops.zookeeper import ServerTls, make_server

ROOT = Path(__file__).resolve().parent.parent.parent
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

    def __init__(
        self, folder: Path, tls: ServerTls | None = None, jaas: Path | None = None
    ) -> None:
        """`jaas`: file with who may log in by SASL."""
        self.port = pick_free(1)[0]
        self.log_path = folder / "zookeeper.log"
        self._child = make_server(
            find_java(), folder=folder, log_path=self.log_path, port=self.port, tls=tls
        )
        if jaas is not None:
            provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            self._child.command[1:1] = [
                f"-Djava.security.auth.login.config={jaas}",
                f"-Dzookeeper.authProvider.sasl={provider}",
            ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, context: ssl.SSLContext | None = None) -> None:
        """`context`: how to ask a server that speaks TLS whether it is there."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *self._child.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(partial(self.answers, context), f"ZooKeeper, see {self.log_path}")

    def answers(self, context: ssl.SSLContext | None = None) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as plain:
                link = context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain
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


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


AS_MADE: Final = {
    "QUIRE_BROKER_INTERNAL_TOPICS_AT_START": "false",
    "QUIRE_BROKER_GROUP_INITIAL_REBALANCE_DELAY_MS": "100",
}
"""Tests count topics and ledgers, and members that join together: there is nothing but what they
make, and it has a moment to come together."""


class LocalCluster:
    """A `quire up` process. Ports are free ones; `about` is what `--json` printed."""

    def __init__(
        self,
        folder: Path,
        *,
        bookies: int = 3,
        brokers: int = 2,
        zookeeper: str | None = None,
        flags: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        program: Sequence[str] = (sys.executable, "-m", "ops.cli.main", "up"),
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log_path = folder / "up.log"
        self.about: dict[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None
        self.environ = {**AS_MADE, **os.environ, **(environ or {})}
        """What `quire up` and its nodes find; `launch` reads it."""
        self._cwd = cwd
        kafka, bookie, admin, own_zookeeper = pick_free_runs(brokers, bookies, 100 + bookies, 1)
        ports = {"--kafka-port": kafka, "--bookie-port": bookie, "--admin-port": admin}
        if zookeeper is None:
            ports["--zookeeper-port"] = own_zookeeper
        else:
            flags = [*flags, "--zookeeper", zookeeper]
        self.ports = ports
        self._command = [
            *program,
            "--json",
            f"--data={self.data}",
            f"--bookies={bookies}",
            f"--brokers={brokers}",
            *(f"{flag}={port}" for flag, port in ports.items()),
            *flags,
        ]

    @property
    def bootstrap_servers(self) -> str:
        return str(self.about["bootstrap_servers"])

    @property
    def zookeeper(self) -> str:
        return str(self.about["zookeeper"])

    @property
    def pid(self) -> int:
        """Process id of `quire up` itself."""
        assert self._process is not None
        return self._process.pid

    def start(self, timeout_s: float = START_TIMEOUT_S) -> "LocalCluster":
        """Start, or start again on the same data and ports, and wait until it serves."""
        self.launch()
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self.kill_all()
            raise AssertionError(f"the cluster did not start:\n{self.log()}")
        self.about = json.loads(line)
        return self

    def launch(self) -> None:
        """Start `quire up` without waiting for anything."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *self._command],
                cwd=self._cwd,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def log(self) -> str:
        """Return what `quire up` wrote to stderr."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def node_log(self, name: str) -> str:
        """Return the log of `bookie-0`, `broker-1`, `zookeeper`."""
        return (self.data / f"{name}.log").read_text()

    def now(self) -> dict[str, Any]:
        """Return `about` with the process ids of the moment."""
        found: dict[str, Any] = json.loads((self.data / "cluster.json").read_text())
        return found

    def pid_of(self, name: str) -> int:
        """Return the process id of `bookie-0`, `broker-1`, `zookeeper` at the moment."""
        now = self.now()
        if name == "zookeeper":
            return int(now["zookeeper_pid"])
        kind, _, index = name.partition("-")
        return int(now[{"bookie": "bookies", "broker": "brokers"}[kind]][int(index)]["pid"])

    def pids(self) -> list[int]:
        """Return the process ids of all nodes, without `quire up` itself."""
        now = self.now()
        pids = [node["pid"] for node in [*now["bookies"], *now["brokers"]]]
        return pids + ([now["zookeeper_pid"]] if now["zookeeper_pid"] else [])

    def kill(self, name: str, signal_number: int = signal.SIGKILL) -> int:
        """Send a signal to one node, kill -9 by default; return the pid it had."""
        pid = self.pid_of(name)
        os.kill(pid, signal_number)
        return pid

    def wait_restarted(self, name: str, old_pid: int, timeout_s: float = 30.0) -> int:
        """Wait until the supervisor has started a node again; return its new pid."""
        wait_until(lambda: self.pid_of(name) != old_pid, f"{name} to be restarted", timeout_s)
        return self.pid_of(name)

    def stop(self, timeout_s: float = 60.0) -> int:
        """Ask for a clean stop; return the exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self.wait(timeout_s)
        return code

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait until `quire up` ended; return its exit code."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"`quire up` did not stop:\n{self.log()}") from None
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    def kill_all(self) -> None:
        """kill -9 the supervisor, and with it, by their leashes, all nodes at once.

        Returns when they are gone: until then their ports are taken.
        """
        if self._process is not None:
            nodes = self.pids() if self.about else []
            self._process.kill()
            self.wait()
            wait_until(lambda: not any(map(is_alive, nodes)), "the killed nodes to be gone")

    def __enter__(self) -> "LocalCluster":
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self.stop()
