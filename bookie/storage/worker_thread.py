"""A thread that does one job after the other for the event loop.

`ThreadPoolExecutor` of one thread does the same, with a future of its own behind each of the
loop's and a lock around both; for the sync of a small group, of which there are thousands a
second, and for its place in the index, that is a good part of what the group costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Jobs in, futures out, in order."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do `work` behind everything that was given before; its outcome arrives on the loop."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put((loop, done, work))
        return done

    def close(self) -> None:
        """Wait until everything is done, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

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


_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
