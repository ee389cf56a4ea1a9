"""Kafka's command-line tools, unmodified, one after the other in one JVM (`java/Tools.java`).

To start a JVM is most of what a command costs, in time and in CPU. A tool meets in it what it meets
in a JVM of its own.
"""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import threading
from typing import NamedTuple

from tests.integration.clients.java_programs import java_program

_OPENED = "--add-opens=java.base/java.lang=ALL-UNNAMED"
"""Where shutdown hooks are kept."""


class Ended(NamedTuple):
    """What a tool ended with, and what it printed."""

    code: int
    out: str
    err: str


class ToolsJvm:
    """A JVM that runs one tool at a time. It is started by the first, and again after one that
    did not end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def close(self) -> None:
        """End the JVM."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def run(self, main: str, *arguments: str, text: str = "", timeout_s: float = 60.0) -> Ended:
        """Run a tool by its main class, with `text` typed in, and wait for its end."""
        request = {"main": main, "arguments": arguments, "text": text}
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    java_program("java", "Tools", _OPENED),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
                )  # fmt: skip
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            watch = threading.Timer(timeout_s, process.kill)
            watch.start()
            try:
                print(json.dumps(request), file=process.stdin, flush=True)
                line = process.stdout.readline()
            finally:
                watch.cancel()
            if not line:
                self.close()
                told = f"{main} {' '.join(arguments)}"
                raise AssertionError(f"{told}: took more than {timeout_s:g} s, or ended its JVM")
        return Ended(**json.loads(line))


@functools.cache
def shared_jvm() -> ToolsJvm:
    """Return the one of this process, which ends with it."""
    jvm = ToolsJvm()
    atexit.register(jvm.close)
    return jvm


def run(main: str, *arguments: str, text: str = "", timeout_s: float = 60.0) -> str:
    """Run a tool that must end well; return what it printed."""
    ended = shared_jvm().run(main, *arguments, text=text, timeout_s=timeout_s)
    assert ended.code == 0, f"{ended.out}\n{ended.err}"
    return ended.out
