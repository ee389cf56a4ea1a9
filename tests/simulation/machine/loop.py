"""A simulated asyncio event loop: virtual time, many processes, one thread, one seed.

`SimLoop` subclasses `asyncio.BaseEventLoop` and replaces the part that waits and picks: C tasks
and futures, `asyncio.timeout`, `gather`, `TaskGroup` and streams work on it unchanged. Every
handle belongs to the process found in its context (`hosts.PROCESS`). The real freedom of a
cluster is that processes interleave in any way while one process' ready queue is first in,
first out: so the loop picks a process at random and runs its oldest handle. In hostile mode it
picks a random handle instead, which finds code that leans on the order by accident.

Time moves when nothing is ready, to the next timer, and by `step_cost_s` with every handle, so
that network arrivals fall between the steps of a long chain of callbacks.

Determinism: the only inputs are the seed and the code. Tasks and futures carry numbers as their
hash, so that sets of them iterate in the same order in every run.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import math
import random
import sys
import threading
from asyncio import events
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from tests.simulation.machine.hosts import PROCESS, Host, Injected, Process, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

_HEAP_COMPACT_MIN = 256


class Violation(AssertionError):
    """An invariant does not hold. The first word of the message is the invariant's name."""


class Stuck(RuntimeError):
    """The schedule ran out of events or of its budget before its driver finished."""


class Handle:
    """A callback that waits for its turn, or for its time; what `call_soon`/`call_at` return."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "loop", "process", "when_s")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
        process: Process,
        when_s: float = -1.0,
        loop: SimLoop | None = None,
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.process = process
        self.when_s = when_s
        self.loop = loop
        """Set for timers only: the loop counts cancelled ones to compact its heap."""
        self.is_cancelled = False

    def cancel(self) -> None:
        """Never run the callback."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.callback = None
            self.args = ()
            if self.loop is not None:
                self.loop._timer_cancelled()

    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self.is_cancelled

    def when(self) -> float:
        """Return the virtual time at which a timer is due."""
        return self.when_s


class NumberedTask(asyncio.Task):
    """A task whose hash is a number given in order of first use, equal in every run."""

    __slots__ = ("_number",)

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = self._loop.next_number()
            return self._number


class NumberedFuture(asyncio.Future):
    """A future whose hash is a number given in order of first use, equal in every run."""

    __slots__ = ("_number",)

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = self._loop.next_number()
            return self._number


@contextlib.contextmanager
def _known_loop(loop: SimLoop) -> Iterator[None]:
    """Make asyncio cheaper while a loop spins; nothing that runs in it can tell.

    The real `get_running_loop` asks the kernel each time whether the process was forked. The
    register of all tasks only fills up with those of killed processes, which `Process.keep` has
    anyway; what remains of it is that it gives every new task its number. It has another name since
    Python 3.12.
    """
    register = "_all_tasks" if sys.version_info < (3, 12) else "_scheduled_tasks"
    always = itertools.repeat(loop).__next__
    replacements: list[tuple[Any, str, Any]] = [
        (asyncio, "get_running_loop", always),
        (events, "get_running_loop", always),
        (events, "_get_running_loop", always),
        (getattr(asyncio.tasks, register), "add", hash),
    ]
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for owner, name, real in saved:
            setattr(owner, name, real)


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one schedule. `net` is set by `SimNet`; `fail` ends the schedule."""

    def __init__(
        self,
        rng: random.Random,
        *,
        step_cost_s: float = 0.0,
        hostile: bool = False,
        steps_max: int = 5_000_000,
    ) -> None:
        super().__init__()
        self.rng = rng
        self._random = rng.random
        self._now = 1000.0
        self._heap: list[tuple[float, int, Any]] = []
        self._sequence = 0
        self._numbers = 0
        self._runnable: list[Process] = []
        self._cancelled_count = 0
        self._step_cost_s = step_cost_s
        self._hostile = hostile
        self._steps_max = steps_max
        self.steps = 0
        self.net: Any = None
        self.driver = Process(None, "driver")
        self.processes: list[Process] = [self.driver]
        """All there ever were: the dead must stay referenced."""
        self.failure: Violation | None = None
        self.on_crash: Callable[[Process, dict[str, Any]], None] | None = None
        """Told of every exception that nobody handled; None makes it a violation."""
        self.digest = 0
        self.on_step: Callable[[Process], None] | None = None
        """Called after each handle with the process that ran it; set it before the loop runs."""

    # ---------------------------------------------------------------- time and handles

    def time(self) -> float:
        """Return virtual seconds."""
        return self._now

    def next_number(self) -> int:
        """Return the next number of this schedule (1, 2, 3, ...)."""
        self._numbers += 1
        return self._numbers

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> Handle:
        """Queue a callback for the process that owns `context` (default: the current one)."""
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.driver
        handle = Handle(callback, args, context, process)
        if process.alive:
            process.ready.append(handle)
            if not process.queued and not process.paused:
                process.queued = True
                self._runnable.append(process)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        """Queue a callback for virtual time `when`."""
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.driver
        handle = Handle(callback, args, context, process, when, self)
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        """Queue a callback for `delay` seconds from now."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def kernel_at(self, when: float, callback: Callable[[], object]) -> None:
        """Run a callback at a virtual time outside every process: wires, disks, the nemesis."""
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, callback))

    def queue_for(self, process: Process, handle: Handle) -> None:
        """Make a process run a handle as soon as it gets its turn."""
        if process.alive:
            process.ready.append(handle)
            if not process.queued and not process.paused:
                process.queued = True
                self._runnable.append(process)

    def _timer_cancelled(self) -> None:
        self._cancelled_count += 1
        heap = self._heap
        if self._cancelled_count > _HEAP_COMPACT_MIN and self._cancelled_count * 2 > len(heap):
            kept = [e for e in heap if type(e[2]) is not Handle or not e[2].is_cancelled]
            heap[:] = kept
            heapq.heapify(heap)
            self._cancelled_count = 0

    # ---------------------------------------------------------------- tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        """Return a numbered future."""
        return NumberedFuture(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Return a numbered task of the current process."""
        self._check_closed()
        if context is None:
            task = NumberedTask(coro, loop=self, name=name)
            owner = PROCESS.get()
        else:
            task = NumberedTask(coro, loop=self, name=name, context=context)
            owner = context.get(PROCESS)
        (owner or self.driver).keep(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[..., object], *args: object
    ) -> asyncio.Future[Any]:
        """Run `func` on the loop a little later and answer later still, as a pool would."""
        del executor
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                answer(future.set_exception, error)
            else:
                answer(future.set_result, result)

        def answer(setter: Callable[[Any], None], value: object) -> None:
            self.call_later(self._random() * 1e-3, lambda: future.done() or setter(value))

        self.call_later(self._random() * 1e-3, work)
        return future

    # ---------------------------------------------------------------- processes

    def start_process(
        self, host: Host, main: Callable[[], Coroutine[Any, Any, object]], *, label: str = ""
    ) -> Process:
        """Boot a program on a host; the process ends when `main` returns or raises."""
        assert host.powered, host
        assert not host.running, host
        host.starts += 1
        process = Process(host, f"{label or host.name}#{host.starts}")
        host.process = process
        self.processes.append(process)
        task = process.context.run(self.create_task, main())
        process.root = task
        task.add_done_callback(lambda done: self._exited(process, done), context=process.context)
        return process

    def _exited(self, process: Process, task: asyncio.Task[object]) -> None:
        if not process.alive:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.call_exception_handler({"message": "main raised", "exception": error})
        self.kill(process)

    def kill(self, process: Process) -> None:
        """End a process as kill -9 does: nothing of it ever runs again."""
        if not process.alive:
            return
        process.alive = False
        if process.queued:
            process.queued = False
            self._runnable.remove(process)
        for on_death in process.on_death:
            on_death()

    def pause(self, process: Process) -> None:
        """Stop a process as SIGSTOP does; its timers and arrivals pile up."""
        process.paused = True
        process.pauses += 1
        if process.queued:
            process.queued = False
            self._runnable.remove(process)

    def resume(self, process: Process) -> None:
        """Let a paused process run again; it does not know that time has passed."""
        process.paused = False
        if process.alive and process.ready and not process.queued:
            process.queued = True
            self._runnable.append(process)

    def fail(self, violation: Violation) -> None:
        """Record the first violation and end the schedule."""
        if self.failure is None:
            self.failure = violation
        self._stopping = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Judge an exception that nobody handled."""
        process = PROCESS.get() or self.driver
        if not process.alive or isinstance(context.get("exception"), (Stopped, Injected)):
            return
        if self.on_crash is not None:
            self.on_crash(process, context)
            return
        error = context.get("exception")
        violation = Violation(f"UNHANDLED in {process.name}: {context.get('message')}: {error!r}")
        violation.__cause__ = error if isinstance(error, BaseException) else None
        self.fail(violation)

    # ---------------------------------------------------------------- connections

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Connect over the simulated network."""
        return await self.net.connect(protocol_factory, host, port, **options)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Listen on the simulated network."""
        return self.net.listen(protocol_factory, host, port, **options)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Resolve a simulated host name."""
        del options
        return self.net.getaddrinfo(host, port)

    # ---------------------------------------------------------------- running

    def run_forever(self) -> None:
        """Run until `stop` or `fail`."""
        self._check_closed()
        self._check_running()
        hooks = sys.get_asyncgen_hooks()
        self._thread_id = threading.get_ident()
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook
        )
        events._set_running_loop(self)
        try:
            with _known_loop(self):
                self._spin()
        finally:
            self._stopping = False
            self._thread_id = None
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _spin(self) -> None:
        heap, runnable, rand = self._heap, self._runnable, self._random
        pop, cost, steps_max = heapq.heappop, self._step_cost_s, self._steps_max
        on_step = self.on_step
        while not self._stopping:
            now = self._now
            while heap and heap[0][0] <= now:
                self._due(pop(heap)[2])
                if self._stopping:
                    return
            if not runnable:
                self._advance()
                continue
            count = len(runnable)
            at = 0 if count == 1 else int(rand() * count)
            process = runnable[at]
            ready = process.ready
            if self._hostile and len(ready) > 1:
                ready.rotate(-int(rand() * len(ready)))
            handle = ready.popleft()
            if not ready:
                process.queued = False
                runnable[at] = runnable[-1]
                runnable.pop()
            if handle.is_cancelled:
                continue
            self.steps += 1
            if self.steps > steps_max:
                raise Stuck(f"more than {steps_max} steps")
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                handle.context.run(
                    self.call_exception_handler,
                    {"message": f"exception in {handle.callback}", "exception": error},
                )
            if on_step is not None:
                on_step(process)
            self._now += cost

    def _advance(self) -> None:
        """Jump to the next timer: nothing is ready anywhere."""
        if not self._heap:
            raise Stuck("nothing left to do")
        self._now = self._heap[0][0]

    def _due(self, item: Any) -> None:
        """Take one thing whose time has come off the heap: kernel work, or a process' timer."""
        if type(item) is not Handle:
            item()
            return
        if item.is_cancelled:
            self._cancelled_count -= 1
            return
        item.loop = None
        process = item.process
        if process.alive:
            process.ready.append(item)
            if not process.queued and not process.paused:
                process.queued = True
                self._runnable.append(process)

    def dispose(self) -> None:
        """Close the loop and let go of all processes; their coroutines may unwind now."""
        for process in self.processes:
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._heap.clear()
        self._runnable.clear()
        for attribute in ("net", "on_crash"):
            setattr(self, attribute, None)
        self.close()

    def exponential(self, mean: float) -> float:
        """Draw an exponential delay."""
        return -mean * math.log(1.0 - self._random())
