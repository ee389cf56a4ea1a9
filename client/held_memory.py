"""Counts the bytes that a process holds for its clients, whichever part of it holds them.

What a client sent passes through several hands: the request that brought it, the partition that it
waits in, the writer that sends it to bookies. Each counts here what it holds, and who hands bytes
on lets go of them when the next one has taken them. So the count says what is held, whoever of
those that wanted it has gone away meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class HeldMemory:
    """A number of bytes, and who wants to know when it becomes smaller."""

    __slots__ = ("on_given", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes held now."""
        self.on_given: Callable[[], None] | None = None
        """Called after bytes were given back, if anybody waits for them: this is a batch's path."""

    def take(self, size: int) -> None:
        """Hold this many bytes more."""
        self.size += size

    def give(self, size: int) -> None:
        """Hold them no longer."""
        self.size -= size
        assert self.size >= 0, "bytes are given back once"
        if self.on_given is not None:
            self.on_given()

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Hold this many bytes meanwhile."""
        self.take(size)
        try:
            yield
        finally:
            self.give(size)
