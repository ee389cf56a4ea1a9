"""Starts and supervises tasks: those that live as long as their node, and single pieces of work.

A task that raises is a bug of ours, and none may end in silence: the loop's exception handler is
told, with the traceback, and the failure is counted (`quire_task_failures_total`). What follows
depends on the task:

    keep    it begins again after a pause, which grows while it keeps failing
    run     it cannot begin again, and a node that goes on without it (a view that is no longer
            followed) does more harm than one that is gone: `broker/__main__.py` ends the process
    begin   it is over: a piece of work for somebody who asks again, or waits for its outcome. An
            error that its work may meet (QuireError) is no failure of it

`tests/unit/test_tasks.py` has the few that are started in another way, with the reason.

Tests and simulations install a handler that fails the run. Pauses go by the loop's time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from client.errors import QuireError

T = TypeVar("T")

log = logging.getLogger(__name__)

_PAUSE_MIN_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0

failures: Final[Counter[str]] = Counter()
"""Failures of this process's tasks, by the first word of their names: shown, never asked.

A task stands here with 0 from its start: a rate over a counter that begins at 1 misses the first.
"""


def run(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task whose failure reaches the loop's exception handler as a fatal one."""
    failures[_kind(name)] += 0
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(_on_done)
    return task


def keep(
    make: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.Task[None]:
    """Start a task that begins again when it fails; it ends when it returns or is cancelled."""
    failures[_kind(name)] += 0
    return (loop or asyncio.get_running_loop()).create_task(_supervise(make, name), name=name)


def begin(coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Start a piece of work that ends by itself; who waits for it gets its outcome as well."""
    failures[_kind(name)] += 0
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(look_at)
    return task


def look_at(task: asyncio.Task[Any]) -> None:
    """Tell of a piece of work that has failed as nobody expected."""
    if task.cancelled():
        return
    error = task.exception()
    if error is None or isinstance(error, QuireError):
        return
    name = task.get_name()
    count_failure(name)
    log.error("task.failed task=%r pause_s=%g", name, 0, exc_info=error)
    task.get_loop().call_exception_handler(
        {"message": f"{name} failed", "exception": error, "task": task, "is_logged": True}
    )


async def _supervise(make: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    loop = asyncio.get_running_loop()
    pause_s = _PAUSE_MIN_S
    while True:
        began_s = loop.time()
        try:
            return await make()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled the task: something that it waited for was, which is a failure.
            cause: BaseException = error
        except Exception as error:  # the outermost loop of a task: nothing may end it
            cause = error
        if loop.time() - began_s >= _PAUSE_MAX_S:
            pause_s = _PAUSE_MIN_S
        count_failure(name)
        log.error("task.failed task=%r pause_s=%g", name, pause_s, exc_info=cause)
        loop.call_exception_handler(
            {"message": f"background task {name} failed", "exception": cause, "is_logged": True}
        )
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def count_failure(name: str) -> None:
    """Count a task that failed."""
    failures[_kind(name)] += 1


def _kind(name: str) -> str:
    """What distinguishes tasks of a kind (a partition, a bookie) stays out of the label."""
    return name.split(" ", 1)[0]


def _on_done(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        count_failure(task.get_name())
        task.get_loop().call_exception_handler(
            {"message": f"background task {task.get_name()} failed", "exception": error,
             "task": task, "fatal": True}
        )  # fmt: skip


async def stop(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait until it is gone; its own failure was reported already."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
