"""Keeps the earliest deadline of each of many names, in order.

A noted deadline may be early: what is woken too soon says again when it wants to be called.
So postponing a deadline costs nothing, and the heap holds few stale entries.
"""

from __future__ import annotations

import heapq


class Wakes:
    """Deadlines in seconds by name."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at_s: dict[str, float] = {}

    def first(self) -> float | None:
        """Return a time at or before the earliest deadline, None if there is none."""
        return self._heap[0][0] if self._heap else None

    def note(self, name: str, at_s: float | None) -> None:
        """Wake `name` at that time or before; a later time than noted already changes nothing."""
        if at_s is not None and at_s < self._at_s.get(name, float("inf")):
            self._at_s[name] = at_s
            heapq.heappush(self._heap, (at_s, name))

    def forget(self, name: str) -> None:
        """Do not wake `name`."""
        self._at_s.pop(name, None)

    def pop_due(self, now_s: float) -> str | None:
        """Return one name that is due and forget its deadline; None if nothing is due."""
        while self._heap and self._heap[0][0] <= now_s:
            at_s, name = heapq.heappop(self._heap)
            if self._at_s.get(name) == at_s:
                del self._at_s[name]
                return name
        return None

    def check(self, expected: dict[str, float | None]) -> None:
        """Assert that everything with a deadline is woken in time."""
        for name, at_s in expected.items():
            assert at_s is None or self._at_s[name] <= at_s
        assert all(name in expected for name in self._at_s)
        assert all((at_s, name) in self._heap for name, at_s in self._at_s.items())
