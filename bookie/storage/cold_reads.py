"""Runs reads of the disk on its reader threads, in the turns of `core/read_turns.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from bookie.storage.core.read_turns import Begun, ReadLimits, ReadTurns
from client.histogram import Stopwatch
from client.ids import LedgerId

T = TypeVar("T", bound=Sequence[object])

_ADDS_LATELY_S: Final = 0.1
"""So long after a group of adds began, reads are beside adds."""
_TIMER_S_MIN: Final = 0.001
"""The event loop's timers are as exact as that."""


class ReaderThreads(Protocol):
    """What reads: a part of `Disk`."""

    reader_threads: int

    def reader_job(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `job` on a reader thread."""
        ...


class Adds(Protocol):
    """What is known of adds: a part of `GroupWriter`."""

    began_s: float
    """When the last group of them did."""
    written_bytes: int
    """Of all groups."""


class ReadJob(NamedTuple):
    """A read that waits, or is under way, on a reader thread."""

    read: Callable[[], Sequence[object]]
    on_done: Callable[[asyncio.Future[Any]], None]


class ColdReads:
    """The reads of one disk."""

    def __init__(
        self,
        threads: ReaderThreads,
        limits: ReadLimits,
        *,
        now_s: Stopwatch,
        adds: Adds,
    ) -> None:
        """`adds`: what reads give way to, by the same stopwatch."""
        self._threads = threads
        # As many as there are threads, or all that wait might bring their entries in one turn.
        self._turns: ReadTurns[ReadJob] = ReadTurns(limits, at_once=threads.reader_threads)
        self._now_s = now_s
        self._adds = adds
        self._under_way: dict[asyncio.Future[Any], None] = {}
        self._over_since_s = 0.0
        """Since when the last job that is over had waited."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_ending = False

    @property
    def waiting(self) -> int:
        """Jobs that wait for their turn."""
        return len(self._turns)

    async def drain(self) -> None:
        """Wait until nothing is under way, and nothing waits. From now on reads give way to nobody:
        the storage ends."""
        self._is_ending = True
        self._begin()
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    def add(
        self,
        ledger_id: LedgerId,
        read: Callable[[], T],
        on_done: Callable[[asyncio.Future[T]], None],
        *,
        is_urgent: bool = False,
        is_rest: bool = False,
    ) -> None:
        """Read when the turn of a ledger has come, and call `on_done` with the outcome.

        `is_urgent`: a recovery needs it. `is_rest`: of the job whose `on_done` is running, which
        has brought a part.
        """
        job = ReadJob(read, on_done)
        since_s = self._over_since_s if is_rest else self._now_s()
        self._turns.push(ledger_id, job, since_s, is_urgent=is_urgent, is_rest=is_rest)
        self._begin()

    def _begin(self) -> None:
        now_s = self._now_s()
        is_lately = now_s < self._adds.began_s + _ADDS_LATELY_S
        beside_adds = is_lately and not self._is_ending
        if beside_adds:
            self._turns.on_added(self._adds.written_bytes, now_s)
        while (begun := self._turns.pop(now_s, beside_adds=beside_adds)) is not None:
            future = self._threads.reader_job(begun.job.read)
            self._under_way[future] = None
            future.add_done_callback(partial(self._over, begun))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_s = self._turns.wait_s(now_s)
        if wait_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(wait_s, _TIMER_S_MIN), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._begin()

    def _over(self, begun: Begun[ReadJob], done: asyncio.Future[Any]) -> None:
        del self._under_way[done]
        size = 0 if done.exception() is not None else _size_of(done.result())
        self._turns.over(begun, self._now_s(), size)
        self._over_since_s = begun.since_s
        try:
            begun.job.on_done(done)  # which may ask for the rest
        finally:
            self._begin()


def _size_of(found: Sequence[object]) -> int:
    """Return the bytes that were read; what was not found has none."""
    return sum(len(entry) for entry in found if isinstance(entry, memoryview))
