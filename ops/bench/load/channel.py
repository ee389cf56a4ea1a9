"""How a load process and the program that drives it talk: lines of JSON.

The process writes events to stdout, each an object with a field `event`; the driver writes single
words to stdin ("go", or a job's own) and reads the events it waits for. Both clocks are
CLOCK_MONOTONIC, which all processes of a machine share: seconds from one mean the same in the
other.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from client.errors import QuireError
from ops.child import LEASH

_EVENT_TIMEOUT_S: Final = 1_800.0
_LINE_BYTES_MAX: Final = 64 << 20


class LoadFailed(QuireError):
    """A load process ended, or reported errors: the round is void."""


def tell(event: str, **fields: Any) -> None:
    """In a load process: report an event."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def hear() -> str:
    """In a load process: wait for the driver's next word; empty when the driver is gone."""
    return sys.stdin.readline().strip()


def heard() -> bool:
    """In a load process: tell whether the driver has said something, without waiting."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


class LoadProcess:
    """One load process, seen from the driver."""

    def __init__(self, job: str, **arguments: Any) -> None:
        """`job`: a module of `ops.bench.load`."""
        self._job = job
        self._command = [sys.executable, "-m", "ops.bench.load", job]
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    @classmethod
    def foreign(cls, command: Sequence[str], **arguments: Any) -> Self:
        """Return a load process of another language, which talks in the same way."""
        load = cls(command[-1], **arguments)
        load._command = list(command)
        return load

    @property
    def pid(self) -> int:
        """The process id; it must run."""
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            # Killed with the program that drives it: nothing is left to load the next run.
            *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
            *self._command,
            json.dumps(self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            if kind is not None:
                process.kill()
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def event(self, *names: str) -> dict[str, Any]:
        """Wait for one of some events. Raises LoadFailed when the process ends or says another."""
        assert self._process is not None and self._process.stdout is not None
        wanted = " or ".join(names)
        async with asyncio.timeout(_EVENT_TIMEOUT_S):
            line = await self._process.stdout.readline()
        if not line:
            raise LoadFailed(f"the load process ({self._job}) ended before it said {wanted!r}")
        event: dict[str, Any] = json.loads(line)
        if event["event"] not in names:
            raise LoadFailed(f"the load process ({self._job}) said {event} instead of {wanted!r}")
        return event

    def say(self, word: str) -> None:
        """Send a word."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
