"""Which large entries leave in one turn of the event loop, and whose turn is next.

What is handed to a ledger is sealed and written to several sockets before the loop looks at any
other: about a millisecond for each MB. A partition that is written as fast as it goes has some MB
ready whenever bookies answer, and everybody else would wait for all of it, at each of the four
times that a request passes through the loop.

    TURN-ALONE  the entries of a partition that nobody else writes beside go at once, unless others
                are in line still: more turns make smaller groups at bookies, and smaller groups
                more work.
    TURN-SMALL  a small entry goes at once, whatever else goes in the same turn.
    TURN-LARGE  large entries of all partitions share `bytes_max` in a turn; the first one goes,
                however large it is.
    TURN-LINE   who has one that does not go waits in line, and nobody who comes later is before
                them. In each turn those in front send what the turn takes; who has sent something
                and has more joins the end. So partitions that have much share the turns by bytes.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

LARGE_BYTES: Final = 64 << 10
"""Larger entries are large. A smaller one costs the loop less than a turn does."""


class SendTurn(Generic[T]):
    """One turn after the other. `T` stands for a partition."""

    __slots__ = ("_bytes_max", "_has_sent", "_is_full", "_line", "_served", "sent_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._line: dict[T, None] = {}
        self._served: T | None = None
        """The first in line, while it sends."""
        self._has_sent = False
        """Whether it has sent something."""
        self._is_full = False
        """Whether it had an entry that does not go in this turn."""
        self.sent_bytes = 0
        """Of large entries, in this turn."""

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits for the next turn."""
        return bool(self._line)

    def admits(self, sender: T, size: int, *, is_alone: bool) -> bool:
        """Whether a large entry goes in this turn; if not, its sender is in line from now on.

        `is_alone`: nobody else has written anything of late.
        """
        is_served = sender is self._served
        fits = is_alone or not self.sent_bytes or self.sent_bytes + size <= self._bytes_max
        if fits and (is_served or not self._line):
            self._has_sent = is_served
            return True
        if is_served:
            self._is_full, self._served = True, None
            if self._has_sent:  # otherwise it stays the first one
                del self._line[sender]
        self._line[sender] = None
        return False

    def on_sent(self, size: int) -> None:
        """A large entry went."""
        self.sent_bytes += size

    def begin(self) -> None:
        """The next turn begins."""
        self._end_service()
        self.sent_bytes = 0
        self._is_full = False

    def next(self) -> T | None:
        """Return whose turn it is to send; None: nobody's any more."""
        self._end_service()
        if self._line and not self._is_full:
            self._served, self._has_sent = next(iter(self._line)), False
        return self._served

    def leave(self, sender: T) -> None:
        """Wait no longer."""
        self._line.pop(sender, None)
        if sender is self._served:
            self._served = None

    def _end_service(self) -> None:
        """Who was served and did not ask for more has no more, or raised."""
        if self._served is not None:
            del self._line[self._served]
            self._served = None
