"""Long polls: reads that wait until a ledger's last add confirmed passes a number.

A poll ends when the LAC has passed, the ledger is fenced or gone, or its time is up; whichever
comes first, once. It also ends, without an answer, when its connection is lost (`LongPolls`).
Source: Apache BookKeeper `LongPollReadEntryProcessorV3`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bookie.storage.core.ledger_guard import Ledger
from client.ids import EntryId


class LongPolls:
    """The parked polls of one connection."""

    def __init__(self) -> None:
        self.is_closed = False
        """Whether nobody is there any more to be answered."""
        self._parked: dict[LongPoll, None] = {}

    def add(self, poll: LongPoll) -> None:
        """A poll waits from now on."""
        self._parked[poll] = None

    def discard(self, poll: LongPoll) -> None:
        """A poll is over."""
        self._parked.pop(poll, None)

    def close(self) -> int:
        """End all polls without an answer; return how many waited."""
        self.is_closed = True
        parked, self._parked = self._parked, {}
        for poll in parked:
            poll.cancel()
        return len(parked)


class LongPoll:
    """One waiting read."""

    def __init__(
        self,
        ledger: Ledger,
        above: EntryId,
        timeout_s: float,
        on_done: Callable[[bool], None],
        loop: asyncio.AbstractEventLoop,
        polls: LongPolls,
    ) -> None:
        """`on_done` gets whether the LAC passed `above`."""
        self._ledger = ledger
        self._above = above
        self._on_done = on_done
        self._polls = polls
        self._timer = loop.call_later(timeout_s, self._time_is_up)
        polls.add(self)
        self._park()

    def cancel(self) -> None:
        """End without telling anybody."""
        self._timer.cancel()
        self._unpark()

    def _park(self) -> None:
        if self._ledger.lac_waiters is None:
            self._ledger.lac_waiters = {}
        self._ledger.lac_waiters[self._look_again] = None

    def _unpark(self) -> None:
        if self._ledger.lac_waiters is not None:
            self._ledger.lac_waiters.pop(self._look_again, None)

    def _look_again(self) -> None:
        """The ledger changed; it no longer knows of this poll."""
        ledger = self._ledger
        if self._polls.is_closed:
            return
        if ledger.lac <= self._above and not ledger.fenced and not ledger.is_deleted:
            self._park()
            return
        self._timer.cancel()
        self._finish()

    def _time_is_up(self) -> None:
        self._unpark()
        self._finish()

    def _finish(self) -> None:
        self._polls.discard(self)
        self._on_done(self._ledger.lac > self._above)
