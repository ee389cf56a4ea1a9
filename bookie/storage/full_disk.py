"""Remembers that a disk was found full: for a while adds are refused, then it is tried again."""

from __future__ import annotations

from collections.abc import Callable


class FullDisk:
    """When a group of a storage last found no space."""

    def __init__(self, retry_s: float, now_s: Callable[[], float]) -> None:
        self._retry_s = retry_s
        self._now_s = now_s
        self.until_s = float("-inf")
        """Adds are refused until then; below zero if the disk never was full."""
        self.ran_full = False
        """Whether that happened since whoever watches the disk's space took note of it."""
        self.on_full: Callable[[], None] = lambda: None
        """Called when a group found no space."""

    def is_full(self) -> bool:
        """Whether the disk was full a moment ago; it is tried again after a while."""
        return self._now_s() < self.until_s

    def refuse(self) -> None:
        """A group found no space: refuse adds for a while."""
        self.until_s = self._now_s() + self._retry_s

    def tell(self) -> None:
        """Tell whoever watches the disk's space."""
        self.ran_full = True
        self.on_full()
