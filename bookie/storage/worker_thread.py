"""Threads that do jobs for the event loop: one of them one after the other, or several.

`ThreadPoolExecutor` does the same, with a future of its own behind each of the loop's and a lock
around both; for the sync of a small group, of which there are thousands a second, for its place in
the index, and for a read, that is a good part of what they cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThreads:
    """Jobs in, futures out."""

    def __init__(self, name: str, count: int) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}_{i}" if i else name, daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Begin `work` behind everything that was given before; its outcome arrives on the loop."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put((loop, done, work))
        return done

    def close(self) -> None:
        """Wait until everything is done, and end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, done, work = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:  # whoever gave the job gets it
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, done, result, error)
            del job, work, done, result, error  # the next one may be long in coming


class WorkerThread(WorkerThreads):
    """One of them: jobs are done in order."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 1)


_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
