"""Counts of durations or sizes by upper bound, as Prometheus wants them, without a clock.

Covers the question which clock measures. Hot paths pay one bisection and two additions; who
measures brings the times. uvloop's `time()` stands still during a turn of the loop and counts
milliseconds: good for deadlines, not for measuring. So programs hand in a finer `Stopwatch`;
without one, in tests and simulations, it is the loop's.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

Stopwatch = Callable[[], float]
"""Returns seconds since any moment; never goes back."""


def loop_time() -> float:
    """Return the running loop's time: the stopwatch of tests and simulations."""
    return asyncio.get_running_loop().time()


LATENCY_BUCKETS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0,
)  # fmt: skip
"""From what stays in this machine's memory to what a client gives up on."""
COUNT_BUCKETS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)
"""How many at once."""
BYTES_BUCKETS: Final = tuple(float(1 << power) for power in range(10, 26, 2))
"""1 KiB to 16 MiB."""


class Histogram:
    """Durations in seconds, or whatever else the bounds are of."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """All of them added up."""

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def observe(self, value: float, times: int = 1) -> None:
        """Count one, or this many of the same value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, how many up to it), ending with +Inf."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))


def observe_alike(first: Histogram, second: Histogram, value: float, times: int = 1) -> None:
    """Count one, or this many of the same value, in two histograms with the same bounds."""
    at = bisect_left(first._bounds, value)
    first._counts[at] += times
    second._counts[at] += times
    first.total += value * times
    second.total += value * times


def observe_each(histograms: Sequence[Histogram], values: Sequence[float]) -> None:
    """Count one value in each histogram: one call for what is measured of every request."""
    for histogram, value in zip(histograms, values, strict=True):
        histogram._counts[bisect_left(histogram._bounds, value)] += 1
        histogram.total += value
