"""Spreads the large entries that a broker's partitions hand to their ledgers over turns of the
loop.

Handing an entry to a ledger computes its digest and writes it to several sockets before the loop
handles anything else: about a millisecond per MB. A partition that is written at full speed has
several MB ready whenever bookies answer, and all other requests would wait for all of it, each of
the four times that they pass through the loop. The next turn comes after the entries of this one
were written to the sockets, and after the loop has served everything else that was ready.

    TURN-ALONE  while no partition is being written that writes little, all entries are sent at
                once, unless others still wait in line: more turns would make smaller group commits
                at bookies, and more of them, and partitions that are equally busy wait for each
                other anyhow.
    TURN-SMALL  a small entry is sent at once, whatever else is sent in the same turn.
    TURN-LARGE  the large entries of all partitions share `bytes_max` per turn; the first one is
                sent however large it is.
    TURN-LINE   a partition whose entry does not fit into the turn waits in line, and later ones go
                behind it. In each turn those at the front send what fits; one that has sent
                something and has more goes to the end. So busy partitions share the turns by bytes.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")

TURN_BYTES_MAX: Final = 1 << 20
LARGE_BYTES: Final = 64 << 10
"""Entries above this are large. A smaller one costs the loop less than a turn does."""


class Sender(Protocol):
    """A partition with entries to send."""

    def on_turn(self) -> None:
        """Send what fits into the turn."""
        ...


class SendTurns:
    """The turns of one broker."""

    def __init__(self, bytes_max: int = TURN_BYTES_MAX) -> None:
        self._turn: SendTurn[Sender] = SendTurn(bytes_max)
        self._is_planned = False

    def admits(self, sender: Sender, size: int, *, is_shared: bool) -> bool:
        """Whether a large entry may be sent now; if not, its sender is called in a later turn."""
        is_admitted = self._turn.admits(sender, size, is_shared=is_shared)
        if not is_admitted:
            self._plan()
        return is_admitted

    def on_sent(self, size: int) -> None:
        """A large entry was handed to its ledger. To be called afterwards: then the ledger's writes
        to sockets, at the end of this turn, come before the next turn."""
        self._turn.on_sent(size)
        self._plan()

    def leave(self, sender: Sender) -> None:
        """Do not call the sender any more."""
        self._turn.leave(sender)

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._is_planned = False
        turn = self._turn
        turn.begin()
        try:
            while (sender := turn.next()) is not None:
                sender.on_turn()
        finally:  # an error of one sender must not block the others
            if turn.is_waited_for or turn.sent_bytes:
                self._plan()


class SendTurn(Generic[T]):
    """The current turn, and the line for the next ones. `T` is a partition."""

    __slots__ = ("_bytes_max", "_has_sent", "_is_full", "_line", "_served", "sent_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._line: dict[T, None] = {}
        self._served: T | None = None
        """The first in line, while it sends."""
        self._has_sent = False
        """Whether `_served` has sent something in this turn."""
        self._is_full = False
        """Whether an entry did not fit into this turn."""
        self.sent_bytes = 0
        """Bytes of large entries sent in this turn."""

    @property
    def is_waited_for(self) -> bool:
        """Whether any partition waits for the next turn."""
        return bool(self._line)

    def admits(self, sender: T, size: int, *, is_shared: bool) -> bool:
        """Whether a large entry may be sent in this turn; if not, its sender is now in line.

        `is_shared`: a partition that writes little has written something recently.
        """
        is_served = sender is self._served
        fits = not is_shared or not self.sent_bytes or self.sent_bytes + size <= self._bytes_max
        if fits and (is_served or not self._line):
            self._has_sent = is_served
            return True
        if is_served:
            self._is_full, self._served = True, None
            if self._has_sent:  # otherwise it stays at the front
                del self._line[sender]
        self._line[sender] = None
        return False

    def on_sent(self, size: int) -> None:
        """A large entry was sent."""
        self.sent_bytes += size

    def begin(self) -> None:
        """The next turn begins."""
        self._end_service()
        self.sent_bytes = 0
        self._is_full = False

    def next(self) -> T | None:
        """Return the next partition to send in this turn; None: there is none."""
        self._end_service()
        if self._line and not self._is_full:
            self._served, self._has_sent = next(iter(self._line)), False
        return self._served

    def leave(self, sender: T) -> None:
        """Leave the line."""
        self._line.pop(sender, None)
        if sender is self._served:
            self._served = None

    def _end_service(self) -> None:
        """A partition that was served and did not ask again has nothing left, or has failed."""
        if self._served is not None:
            del self._line[self._served]
            self._served = None
