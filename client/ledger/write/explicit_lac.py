"""Tells bookies the last add confirmed when no further add carries it.

Covers the explicit LAC's clockwork (rule EXPLICIT-LAC). Every entry carries the LAC of its
sending, so the confirmation of the last one before a pause is known to nobody but the writer. With
an interval set, the writer tells the write set of that entry, once per interval at most and only
if LAC has moved since. It is a service to readers that follow an open ledger: nothing waits for
it, and a bookie that does not take it changes nothing.

Source: Apache BookKeeper `ExplicitLacUpdateFlow`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from client.ids import NO_ENTRY, EntryId


class ExplicitLac:
    """The timer of one writer. It runs only after something was confirmed."""

    __slots__ = ("_interval_s", "_lac", "_loop", "_send", "_sent", "_timer")

    def __init__(
        self, interval_s: float, lac: Callable[[], EntryId], send: Callable[[EntryId], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval_s = interval_s
        self._lac = lac
        self._send = send
        self._sent: EntryId = NO_ENTRY
        self._timer: asyncio.TimerHandle | None = None

    def on_confirmed(self) -> None:
        """LAC moved: tell the bookies within an interval."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval_s, self._on_time)

    def close(self) -> None:
        """Tell nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        lac = self._lac()
        if lac > self._sent:
            self._sent = lac
            self._send(lac)
