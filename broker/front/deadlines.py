"""Many coarse deadlines on one timer.

They serve timeouts that hardly ever fire: each Produce request has one, and its acks arrive long
before. Arming a loop timer for each would cost more than the rest of the bookkeeping; instead all
are checked a few times a second, so a deadline may fire one interval late; behind a call that
raised, two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.25


class Deadlines:
    """Calls that come after a deadline unless cancelled."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[float, Callable[[], None]]] = {}
        self._tickets = 0
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def after(self, timeout_s: float, call: Callable[[], None]) -> int:
        """Call once this much time has passed; return a ticket for `cancel`."""
        if self._timer is None:
            # Asking for the loop takes a system call; once while anything waits is enough.
            self._loop = asyncio.get_running_loop()
            self._timer = self._loop.call_later(INTERVAL_S, self._look)
        self._tickets += 1
        self._waiting[self._tickets] = (self._loop.time() + timeout_s, call)
        return self._tickets

    def cancel(self, ticket: int) -> None:
        """Forget a deadline; one that has come is no error."""
        self._waiting.pop(ticket, None)

    def close(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = self._loop
        now_s = loop.time()
        due = [
            (ticket, call)
            for ticket, (deadline_s, call) in self._waiting.items()
            if deadline_s <= now_s
        ]
        try:
            for ticket, call in due:
                # An earlier call of this round may have cancelled it.
                if self._waiting.pop(ticket, None) is not None:
                    call()
        finally:
            # Whatever a call raises is its own: those behind it come at the next look.
            self._timer = loop.call_later(INTERVAL_S, self._look) if self._waiting else None
