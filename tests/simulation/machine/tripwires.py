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

import prometheus_client.metrics

from tests.simulation.machine.hosts import PROCESS

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


_HARMLESS = (logging, prometheus_client.metrics)
"""Modules that stamp things with the time of day; they get the virtual one."""


class _VirtualTime:
    """Stands in for the `time` module inside a harmless module."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def time(self) -> float:
        return self._now()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextlib.contextmanager
def armed(now: Callable[[], float]) -> Iterator[None]:
    """Arm all tripwires; `now` is the virtual time."""
    saved: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, name: str, replacement: Any) -> None:
        saved.append((owner, name, getattr(owner, name)))
        setattr(owner, name, replacement)

    for owner, names in _TABLE:
        for name in names:
            label = f"{getattr(owner, '__name__', owner)}.{name}"
            replace(owner, name, _guard(label, getattr(owner, name)))
    for module in _HARMLESS:
        replace(module, "time", _VirtualTime(now))
    try:
        yield
    finally:
        for owner, name, real in reversed(saved):
            setattr(owner, name, real)
