"""Spreads the large entries that a broker's partitions hand to their ledgers over turns of the
loop.

`core/send_turn.py` decides which entries are sent in a turn. The next turn comes after these were
written to the sockets, and after the loop has served everything else that was ready.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from broker.partition.leading.core.send_turn import SendTurn

TURN_BYTES_MAX: Final = 1 << 20


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
