"""Callbacks that wait for a number to grow above a threshold.

Long-polling fetches, and group coordinators that replay their log, wait for a partition's high
watermark to pass an offset, or for its last stable offset if they read only committed data. Callers
handle their own deadlines, and cancel. Callbacks are returned in the order of their thresholds,
then of arrival.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

Call = Callable[[], None]


class WatermarkWaits:
    """One-shot waits on one growing number."""

    __slots__ = ("_arrivals", "_calls", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._calls: dict[int, Call] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, above: int, call: Call) -> int:
        """Add a callback for when the number is above `above`; return a ticket for `cancel`."""
        self._arrivals += 1
        self._calls[self._arrivals] = call
        heapq.heappush(self._heap, (above, self._arrivals))
        return self._arrivals

    def cancel(self, ticket: int) -> None:
        """Remove a callback; it is no error if it was returned already."""
        if self._calls.pop(ticket, None) is None:
            return
        if len(self._heap) > 2 * len(self._calls) + 16:
            self._heap = [item for item in self._heap if item[1] in self._calls]
            heapq.heapify(self._heap)

    def on_reached(self, value: int) -> list[Call]:
        """Remove and return the callbacks whose threshold is below `value`."""
        due: list[Call] = []
        while self._heap and self._heap[0][0] < value:
            _, ticket = heapq.heappop(self._heap)
            call = self._calls.pop(ticket, None)
            if call is not None:
                due.append(call)
        return due

    def drain(self) -> list[Call]:
        """Remove and return all callbacks: the number will not grow any more."""
        due = [self._calls[ticket] for _, ticket in sorted(self._heap) if ticket in self._calls]
        self._heap.clear()
        self._calls.clear()
        return due


class ReadableWaits:
    """Waits on the two offsets that bound reads."""

    __slots__ = ("confirmed", "stable")

    def __init__(self) -> None:
        self.confirmed = WatermarkWaits()
        """On the high watermark."""
        self.stable = WatermarkWaits()
        """On the last stable offset."""

    def __len__(self) -> int:
        return len(self.confirmed) + len(self.stable)

    def drain(self) -> list[Call]:
        """Remove and return all callbacks: neither offset will grow any more."""
        return [*self.confirmed.drain(), *self.stable.drain()]
