"""An event loop that never waits: when nothing is ready, time jumps to the next timer."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 1000 s and moves only in jumps."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 1000.0
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._now_s

    def _run_once(self) -> None:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        # As the loop itself does, but before the jump: it would wait for the timer behind them.
        while timers and timers[0].cancelled():
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False
        if not self._ready and timers:  # type: ignore[attr-defined]
            self._now_s = max(self._now_s, timers[0].when())
        super()._run_once()  # type: ignore[misc]


class VirtualClock:
    """Wall time that goes with the loop of the moment."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(asyncio.get_running_loop().time() * 1000)


def run(scenario: Coroutine[Any, Any, T], *, timeout_s: float = 100_000.0) -> T:
    """Run a scenario in virtual time; fails if a callback raised."""
    loop = VirtualTimeLoop()
    try:
        result = loop.run_until_complete(asyncio.wait_for(scenario, timeout_s))
        assert loop.errors == []
        return result
    finally:
        loop.close()
