"""How much a bookie holds that is not durable and indexed yet: what back-pressure is made of.

One counter over all directories. Above the limit no connection is read, from that very moment, so
writers feel a slow disk instead of the bookie's memory: what is accepted stays below the limit
plus the adds that one connection's last bytes completed, and the very first bytes of connections
made since.
"""

from __future__ import annotations

from collections.abc import Callable


class Backlog:
    """Bytes of accepted entries, with a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self.on_change: Callable[[], None] = lambda: None
        """Called when `is_over` has changed."""

    @property
    def is_over(self) -> bool:
        """Whether more adds should stay in the sockets."""
        return self.bytes > self._bytes_max

    def add(self, size: int) -> None:
        """So many bytes of entries were accepted."""
        before = self.bytes
        after = self.bytes = before + size
        if before <= self._bytes_max < after:
            self.on_change()

    def remove(self, size: int) -> None:
        """So many are durable and indexed, or given up."""
        before = self.bytes
        after = self.bytes = before - size
        if after <= self._bytes_max < before:
            self.on_change()


class BacklogShare:
    """What one storage holds of the backlog."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._bytes = 0

    def add(self, size: int) -> None:
        """The storage accepted so many bytes of entries."""
        self._bytes += size
        self._backlog.add(size)

    def remove(self, size: int) -> None:
        """So many of them are durable and indexed, or given up."""
        self._bytes -= size
        self._backlog.remove(size)

    def remove_all(self) -> None:
        """The storage gives up all it holds."""
        self.remove(self._bytes)
