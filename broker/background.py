"""Tasks that must never end by themselves.

This file is the only home of what happens when one does: a task that raises is a bug of ours,
and a broker that goes on without its eyes (a view that is no longer followed) or hands does more
harm than one that is gone. The loop's exception handler is told; `broker/__main__.py` installs
one that stops the process, tests and simulations one that fails the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def run(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task whose failure reaches the loop's exception handler."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(_on_done)
    return task


def _on_done(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        task.get_loop().call_exception_handler(
            {"message": f"background task {task.get_name()} failed", "exception": error,
             "task": task, "fatal": True}
        )  # fmt: skip


async def stop(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait until it is gone; its own failure was reported already."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
