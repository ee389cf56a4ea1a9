"""Telling the owners of adds what became of them: in entry order, one at a time, each exactly once.

This file is the only home of calling `on_done`. A callback may add, close or abandon; what that
makes due is told after what was due before. A callback that raises is its owner's bug and goes to
the loop; nobody else's turn is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from client.errors import LedgerError, Outcome, WriteFailed
from client.ids import EntryId
from client.ledger.core.adds import Confirmed, Failed

OnDone = Callable[[EntryId, LedgerError | None], None]
"""Called with the entry id and None once confirmed, otherwise with what went wrong."""


class _Due:
    """A run of adds that are to be told. `next` moves on before each call."""

    __slots__ = ("error", "last", "next")

    def __init__(self, first: EntryId, last: EntryId, error: LedgerError | None) -> None:
        self.next = first
        self.last = last
        self.error = error


class AddReports:
    """The callbacks of one writer's adds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: deque[OnDone] = deque()
        """One per add that was not told yet, in entry order."""
        self._due: deque[_Due] = deque()
        self._is_telling = False

    def expect(self, on_done: OnDone) -> None:
        """Remember whom to tell about the next add."""
        self._callbacks.append(on_done)

    def tell(self, outcome: Confirmed | Failed) -> None:
        """Tell a run of adds, after all runs before it."""
        error = _of_sent(outcome.error) if isinstance(outcome, Failed) else None
        self._due.append(_Due(outcome.first, outcome.last, error))
        if not self._is_telling:
            self._tell_due()

    def _tell_due(self) -> None:
        self._is_telling = True
        try:
            while self._due:
                due = self._due[0]
                while due.next <= due.last:
                    entry_id = due.next
                    due.next = EntryId(entry_id + 1)
                    self._callbacks.popleft()(entry_id, due.error)
                self._due.popleft()
        finally:
            self._is_telling = False
            if self._due:
                self._loop.call_soon(self._tell_due)


def _of_sent(error: LedgerError) -> LedgerError:
    """Return what adds that were sent are told when `error` ends the writer.

    Whatever the reason, some bookies may have stored them, and recovery may keep them: their
    outcome is unknown, also where that of the failed step (no replacement found) is certain.
    """
    if error.outcome is Outcome.UNKNOWN:
        return error
    unknown = WriteFailed(f"the writer ended: {error!r}")
    unknown.__cause__ = error
    return unknown
