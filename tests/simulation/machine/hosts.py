"""Machines and the processes that run on them.

A `Host` is a machine: it keeps its disk and its clock error while processes come and go. A
`Process` is one incarnation of a program on a host. Which process runs is a context variable;
asyncio copies the context into every task, timer and callback, so the loop knows the owner of
each handle without any change to the code under test.

Killing a process means that none of its handles ever runs again: no `finally`, no
`CancelledError`, as with kill -9. Its suspended coroutines must stay referenced, because Python
would throw GeneratorExit into a collected one and run its `finally` blocks in a dead process;
`Process.tasks` is that graveyard.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.machine.loop import Handle, SimLoop

PROCESS: ContextVar[Process | None] = ContextVar("simulated_process", default=None)
"""The process whose code runs now; None for the schedule's own driver code."""

_TASKS_PRUNE_MIN = 64


class Stopped(BaseException):
    """Unwinds the code that was running when its process ended; nobody may catch it."""


class Injected(Exception):
    """A bug that a schedule makes a program run into, to see that it costs what it should."""


class Host:
    """A machine: survives its processes, may lose power, has a wall clock of its own."""

    __slots__ = ("disk", "ip", "name", "powered", "process", "starts", "wall_offset_ms")

    def __init__(self, name: str, ip: str) -> None:
        self.name = name
        self.ip = ip
        self.powered = True
        self.process: Process | None = None
        self.starts = 0
        self.wall_offset_ms = 0
        self.disk: object = None

    def __repr__(self) -> str:
        return f"Host({self.name})"

    @property
    def running(self) -> bool:
        """Whether a process is alive here (it may be paused)."""
        return self.process is not None and self.process.alive


class Process:
    """One incarnation of a program; owns handles, tasks, connections and open files."""

    __slots__ = (
        "alive",
        "context",
        "host",
        "name",
        "on_death",
        "paused",
        "pauses",
        "queued",
        "ready",
        "root",
        "tasks",
        "tasks_prune_at",
    )

    def __init__(self, host: Host | None, name: str) -> None:
        self.host = host
        self.name = name
        self.alive = True
        self.paused = False
        self.pauses = 0
        self.queued = False
        """Whether the loop's list of runnable processes holds this one."""
        self.ready: deque[Handle] = deque()
        self.tasks: list[asyncio.Task[object]] = []
        self.tasks_prune_at = _TASKS_PRUNE_MIN
        self.on_death: list[Callable[[], None]] = []
        self.root: object = None
        """What the process' main made; kept so that nothing is collected after a kill."""
        context = copy_context()
        context.run(PROCESS.set, self)
        self.context: Context = context

    def __repr__(self) -> str:
        return f"Process({self.name})"

    def keep(self, task: asyncio.Task[object]) -> None:
        """Hold a strong reference to a task until it is done, also after death."""
        tasks = self.tasks
        tasks.append(task)
        if len(tasks) >= self.tasks_prune_at:
            self.tasks = [t for t in tasks if not t.done()]
            self.tasks_prune_at = max(_TASKS_PRUNE_MIN, 2 * len(self.tasks))


class SimClock:
    """Wall clock of one host: virtual time plus the host's error; satisfies `client.ids.Clock`."""

    __slots__ = ("_host", "_loop")

    EPOCH_MS = 1_750_000_000_000

    def __init__(self, loop: SimLoop, host: Host) -> None:
        self._loop = loop
        self._host = host

    def now_ms(self) -> int:
        """Return the host's idea of milliseconds since the Unix epoch."""
        return self.EPOCH_MS + int(self._loop.time() * 1000) + self._host.wall_offset_ms
