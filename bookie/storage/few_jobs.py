"""Reader jobs of one kind, of which a few are under way at a time; the others wait in their order.

Whoever asks for very much, or very often, shall not have all reader threads, nor all of a turn of
the event loop for what they bring.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

Submit = Callable[[Callable[[], Any]], asyncio.Future[Any]]


class FewJobs:
    """The jobs of one kind."""

    def __init__(self, submit: Submit, *, at_once: int) -> None:
        """`submit` hands a job to the reader threads."""
        self._submit = submit
        self._free = at_once
        self._waiting: deque[tuple[Callable[[], Any], Callable[[asyncio.Future[Any]], None]]]
        self._waiting = deque()

    def add(self, job: Callable[[], T], on_done: Callable[[asyncio.Future[T]], None]) -> None:
        """Run a job when its turn has come, and call `on_done` with it."""
        self._waiting.append((job, on_done))
        self._start()

    def _start(self) -> None:
        while self._free and self._waiting:
            job, on_done = self._waiting.popleft()
            self._free -= 1
            self._submit(job).add_done_callback(partial(self._over, on_done))

    def _over(
        self, on_done: Callable[[asyncio.Future[Any]], None], done: asyncio.Future[Any]
    ) -> None:
        self._free += 1
        self._start()
        on_done(done)
