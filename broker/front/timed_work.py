"""Measures the time that a coroutine takes of the loop, without the time in which it waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from client.histogram import Stopwatch

T = TypeVar("T")


class TimedWork(Generic[T]):
    """Awaits something, and hands the seconds of each of its steps to a function."""

    def __init__(
        self, work: Awaitable[T], now_s: Stopwatch, spent: Callable[[float], None]
    ) -> None:
        self._work = work
        self._now_s = now_s
        self._spent = spent

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        sent: Any = None
        raised: BaseException | None = None
        while True:
            began_s = self._now_s()
            try:
                waits_for = steps.send(sent) if raised is None else steps.throw(raised)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            finally:
                self._spent(self._now_s() - began_s)
            raised = None
            try:
                sent = yield waits_for
            except BaseException as error:  # for what is awaited to deal with
                raised = error
