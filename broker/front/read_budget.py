"""Limits the record bytes that all fetches together may be reading from bookies at once.

Otherwise consumers that lag behind could ask for more than memory holds: every fetch asks for its
maximum, and the bytes stay in memory until they are sent.
"""

from __future__ import annotations


class ReadBudget:
    """A number of bytes that is taken and given back."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0

    def take(self, size: int, *, at_any_rate: bool = False) -> bool:
        """Take bytes if they are left, or `at_any_rate` for a reader that must make progress."""
        if not at_any_rate and self.taken + size > self.bytes_max:
            return False
        self.taken += size
        return True

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.taken -= size
        assert self.taken >= 0
