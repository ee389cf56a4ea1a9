"""A thread that does one job after the other for the event loop.

`ThreadPoolExecutor` of one thread does the same, with a future of its own behind each of the
loop's and a lock around both; for the sync of a small group, of which there are thousands a
second, that is a good part of what the group costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue


class WorkerThread:
    """Jobs in, futures out, in order."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Do `work` behind everything that was given before; its outcome arrives on the loop."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._jobs.put((loop, done, work))
        return done

    def close(self) -> None:
        """Wait until everything is done, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, done, work = job
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:  # whoever gave the job gets it
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, done, error)


_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]", Callable[[], None]]


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
