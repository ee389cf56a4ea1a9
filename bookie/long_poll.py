"""Long polls: reads that wait until a ledger's last add confirmed passes a number.

A poll ends when the LAC has passed, the ledger is fenced or gone, or its time is up; whichever
comes first, once. This file is the only home of that wait. Source: Apache BookKeeper
`LongPollReadEntryProcessorV3`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bookie.core.ledger_guard import Ledger
from client.ids import EntryId


class LongPoll:
    """One waiting read."""

    def __init__(
        self,
        ledger: Ledger,
        above: EntryId,
        timeout_s: float,
        on_done: Callable[[bool], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`on_done` gets whether the LAC passed `above`."""
        self._ledger = ledger
        self._above = above
        self._on_done = on_done
        self._timer = loop.call_later(timeout_s, self._time_is_up)
        self._park()

    def _park(self) -> None:
        if self._ledger.lac_waiters is None:
            self._ledger.lac_waiters = []
        self._ledger.lac_waiters.append(self._look_again)

    def _look_again(self) -> None:
        """The ledger changed; it no longer knows of this poll."""
        ledger = self._ledger
        if ledger.lac <= self._above and not ledger.fenced and not ledger.is_deleted:
            self._park()
            return
        self._timer.cancel()
        self._on_done(self._ledger.lac > self._above)

    def _time_is_up(self) -> None:
        waiters = self._ledger.lac_waiters
        if waiters is not None and self._look_again in waiters:
            waiters.remove(self._look_again)
        self._on_done(self._ledger.lac > self._above)
