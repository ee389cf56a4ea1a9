"""Lets the partitions of a broker hand large entries to their ledgers a turn of the loop at a time.

`core/send_turn.py` says which go in a turn. The next one comes after what was sent has been written
to the sockets, and after the loop has served whoever else is there.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from broker.partition.leading.core.send_turn import SendTurn

TURN_BYTES_MAX: Final = 1 << 20


class Sender(Protocol):
    """A partition with entries to send."""

    def on_turn(self) -> None:
        """Send what the turn takes."""
        ...


class SendTurns:
    """The turns of one broker."""

    def __init__(self, bytes_max: int = TURN_BYTES_MAX) -> None:
        self._turn: SendTurn[Sender] = SendTurn(bytes_max)
        self._is_planned = False

    def admits(self, sender: Sender, size: int, *, is_alone: bool) -> bool:
        """Whether a large entry goes now; if not, its sender is called in a later turn."""
        is_admitted = self._turn.admits(sender, size, is_alone=is_alone)
        if not is_admitted:
            self._plan()
        return is_admitted

    def on_sent(self, size: int) -> None:
        """A large entry was handed to its ledger: not before, for what that has written to sockets
        at the end of this turn is then written before the next one."""
        self._turn.on_sent(size)
        self._plan()

    def leave(self, sender: Sender) -> None:
        """Call no longer."""
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
        finally:  # what one raises keeps nobody waiting
            if turn.is_waited_for or turn.sent_bytes:
                self._plan()
