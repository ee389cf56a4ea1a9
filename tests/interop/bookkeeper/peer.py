"""Apache BookKeeper's client and shell in a JVM of their own, from Python: see `java/Peer.java`."""

from __future__ import annotations

import base64
import itertools
import json
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.bookkeeper import jvm

ANSWER_TIMEOUT_S = 60.0


class PeerError(Exception):
    """A Java client failed. `code` is BookKeeper's, like -101 for a fenced ledger."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


class PeerSilent(PeerError):
    """The JVM is there and says nothing."""


class Call:
    """A request under way, and what was heard of it."""

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.acked = -1
        self.forgotten: list[dict[str, Any]] = []
        """Each time that a stream's handle forgot acknowledged adds, what was pending."""

    def hear(self, message: dict[str, Any] | None) -> None:
        self._heard.put(message)

    def result(self, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        """Wait for the answer. Raises PeerError, also when the JVM is gone."""
        while True:
            message = self._next(timeout_s)
            if "error" in message:
                raise PeerError(message["error"], message["code"])
            if not self._is_progress(message):
                return message

    def wait_acked(self, entry: int, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Wait until a stream has an entry acknowledged."""
        while self.acked < entry:
            message = self._next(timeout_s)
            if "error" in message:
                raise PeerError(message["error"], message["code"])
            self._is_progress(message)

    def drain(self) -> int:
        """Take in everything that was said before the JVM ended; return the last ack."""
        while (message := self._heard.get(timeout=ANSWER_TIMEOUT_S)) is not None:
            assert "error" not in message, message
            self._is_progress(message)
        return self.acked

    def _is_progress(self, message: dict[str, Any]) -> bool:
        """Take in what a stream tells before its answer."""
        if "forgotten" in message:
            self.forgotten.append(message["forgotten"])
            return True
        self.acked = message.get("acked", self.acked)
        return "acked" in message

    def _next(self, timeout_s: float) -> dict[str, Any]:
        try:
            message = self._heard.get(timeout=timeout_s)
        except queue.Empty:
            raise PeerSilent(f"no answer within {timeout_s:g} s", 0) from None
        if message is None:
            raise PeerError("the JVM ended", 0)
        return message


class Peer:
    """One JVM. Calls may come from several threads."""

    def __init__(
        self,
        zookeeper: str,
        folder: Path,
        name: str = "peer",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`properties`: further system properties of the JVM."""
        self.log_path = folder / f"{name}.log"
        settings = jvm.write_settings(
            folder / f"{name}.conf",
            {
                "journalDirectories": folder / f"{name}-journal",
                "ledgerDirectories": folder / f"{name}-ledgers",
                "allowLoopback": "true",
                "advertisedAddress": "127.0.0.1",
            },
        )
        self._process = jvm.launch(
            "Peer",
            zookeeper,
            str(settings),
            log=self.log_path,
            class_path=jvm.peer_class_path(),
            properties={"quire.log": "warn", **(properties or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._calls: dict[int, Call] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, do: str, tree: str, **request: Any) -> Call:
        """Send a request; `tree` is the cluster's root in ZooKeeper."""
        call, number = Call(), next(self._ids)
        self._calls[number] = call
        line = json.dumps({"id": number, "do": do, "tree": tree, **request})
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        return call

    def call(self, do: str, tree: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer. Raises PeerError."""
        return self.start(do, tree, **request).result()

    def shell(self, tree: str, *args: str, rc: int = 0, **conf: str) -> str:
        """Run a command of `bookkeeper shell`; return what it printed."""
        found = self.call("shell", tree, args=args, conf=conf)
        assert found["rc"] == rc, found["output"]
        return str(found["output"])

    def read(self, tree: str, handle: int, **bounds: Any) -> list[bytes]:
        """Read the payloads of an open handle, all up to its LAC by default."""
        found = self.call("read", tree, handle=handle, **bounds)
        return [base64.b64decode(payload) for payload in found["payloads"]]

    def dump_threads(self) -> None:
        """Let the process write the stacks of all its threads into its log."""
        self._process.send_signal(signal.SIGQUIT)

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                message = json.loads(line)
                self._calls[message["id"]].hear(message)
        for call in self._calls.values():
            call.hear(None)
