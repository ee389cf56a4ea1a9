"""Calls that real time, real randomness, threads or the machine would leak through.

While armed, each of them raises when simulated process code makes it; the driver and the test
code around the loop may. `logging` gets the virtual clock, so that records can be made.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from tests.simulation.hosts import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Forbidden(AssertionError):
    """Simulated code called something that a simulation cannot control."""


_TABLE: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")),
    (
        random,
        (
            "random",
            "randrange",
            "randint",
            "choice",
            "shuffle",
            "uniform",
            "getrandbits",
            "sample",
            "choices",
            "randbytes",
        ),
    ),
    (os, ("urandom", "getrandom", "open", "fsync", "fdatasync", "rename", "replace", "unlink")),
    (uuid, ("uuid1", "uuid4")),
    (secrets, ("token_bytes", "token_hex", "randbelow", "randbits", "choice")),
    (threading.Thread, ("start",)),
    (socket.socket, ("__init__",)),
    (subprocess.Popen, ("__init__",)),
    (builtins, ("open",)),
)


def _guard(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def tripwire(*args: Any, **kwargs: Any) -> Any:
        process = PROCESS.get()
        if process is not None:
            raise Forbidden(f"{name} called inside {process.name}")
        return real(*args, **kwargs)

    return tripwire


class _LogTime:
    """Stands in for the `time` module inside `logging`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def time(self) -> float:
        return self._now()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextlib.contextmanager
def armed(now: Callable[[], float]) -> Iterator[None]:
    """Arm all tripwires; `now` gives log records their (virtual) time."""
    saved: list[tuple[Any, str, Any]] = []
    for owner, names in _TABLE:
        for name in names:
            real = getattr(owner, name)
            saved.append((owner, name, real))
            label = f"{getattr(owner, '__name__', owner)}.{name}"
            setattr(owner, name, _guard(label, real))
    log_time = logging.time  # type: ignore[attr-defined]
    logging.time = _LogTime(now)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        logging.time = log_time  # type: ignore[attr-defined]
        for owner, name, real in reversed(saved):
            setattr(owner, name, real)
