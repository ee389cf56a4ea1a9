"""Python's collector of reference cycles, paced so that it never stops a server for long.

Left alone the collector looks at young objects after this many allocations *more than releases*. A
server whose caches are full releases as much as it takes, so its young objects pile up by the
hundred thousand, uncounted, until some burst of requests makes the collector look at all of them at
once: 160 ms in which nobody is served, seen under nine thousand reads of a bookie. So it is called
by time as well, which bounds what has become of it since: eight times a second, some milliseconds
each under load and some 20 us otherwise. Young and middle-aged objects are looked at together, each
of them once: a thousand requests that are always under way cost a broker 9 us of its processor for
each request when they were looked at again as middle-aged ones.

What was there when a program began to serve is never looked at again, and old objects only when
there have been many more of everything, for half a minute, than after the last time: nothing on the
way of an entry makes cycles, and to look at a million objects takes some 300 ms, which no pace can
divide. Half a minute, because a large request makes a million objects for some seconds, and looking
at them then would be a stall that whoever sent it can cause.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Final

_THRESHOLDS: Final = (25_000, 1, 1_000_000)
"""Young objects, for bursts between two ticks; middle-aged ones, with every other collection of
young ones; old ones: never by count."""

_TICK_S: Final = 1 / 8

_TICKS_UNTIL_LOOK: Final = 20
"""Counting what is allocated takes up to a millisecond: every two or three seconds are enough."""

_LOOKS: Final = 12
"""So many in a row have to find that there is more: half a minute."""

_GROWTH_MIN: Final = 1_000_000
_GROWTH_SHARE: Final = 4


class Growth:
    """Says when old objects are worth a look: when everything grew by a quarter, by much, and for
    long enough."""

    def __init__(self, block_count: int) -> None:
        self._due_at = 0
        self._found_count = 0
        """Looks in a row that found it grown."""
        self.collected(block_count)

    def is_due(self, block_count: int) -> bool:
        """Look: this many blocks of memory are in use. Return whether to collect all."""
        self._found_count = self._found_count + 1 if block_count >= self._due_at else 0
        return self._found_count >= _LOOKS

    def collected(self, block_count: int) -> None:
        """All were looked at, and this many blocks are left."""
        self._found_count = 0
        self._due_at = block_count + max(_GROWTH_MIN, block_count // _GROWTH_SHARE)


class Collector:
    """Collects at its own pace. `start` once, when the loop runs; `close` once."""

    def __init__(self) -> None:
        self._growth = Growth(sys.getallocatedblocks())
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; what exists now is never looked at again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        self._growth.collected(sys.getallocatedblocks())
        self._arm()

    def close(self) -> None:
        """Leave the collector to itself."""
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> None:
        """Look at young and middle-aged objects; seldom at all."""
        self._ticks += 1
        if not self._ticks % _TICKS_UNTIL_LOOK and self._growth.is_due(sys.getallocatedblocks()):
            gc.collect()
            self._growth.collected(sys.getallocatedblocks())
        else:
            gc.collect(1)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._on_timer)

    def _on_timer(self) -> None:
        self.tick()
        self._arm()
