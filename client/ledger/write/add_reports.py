"""Reports the outcome of adds to their owners: in entry order, one at a time, each exactly once.

Covers calling `on_done`. A callback may add, close or abandon; what that makes due is told after
what was due before. A callback that raises is its owner's bug (`client/callbacks.py`): everybody
else has his turn, and the writer fails, for its owner cannot take what becomes of its adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from client import callbacks
from client.errors import LedgerError, Outcome, WriteFailed
from client.ids import EntryId
from client.ledger.core.adds import Confirmed, Failed
from client.ledger.stats import LedgerStats

OnDone = Callable[[EntryId, LedgerError | None], None]
"""Called with the entry id and None once confirmed, otherwise with what went wrong."""


class AddReports:
    """The callbacks of one writer's adds."""

    __slots__ = ("_callbacks", "_due", "_is_telling", "_on_raised", "_stats")

    def __init__(self, stats: LedgerStats, on_raised: Callable[[LedgerError], None]) -> None:
        """`on_raised`: ends the writer, with this error."""
        self._stats = stats
        self._on_raised = on_raised
        self._callbacks: dict[int, OnDone] = {}
        """By entry id; one per add that was not told yet."""
        self._due: list[tuple[Iterator[int], LedgerError | None]] = []
        """Runs of entries to tell, few; an iterator has moved on before each call."""
        self._is_telling = False

    def expect(self, entry_id: EntryId, on_done: OnDone) -> None:
        """Remember whom to tell about an add."""
        self._callbacks[entry_id] = on_done
        self._stats.sent_entries += 1

    def tell(self, outcome: Confirmed | Failed) -> None:
        """Tell a run of adds, after all runs before it."""
        if isinstance(outcome, Confirmed):
            ids: Sequence[int] = range(outcome.first, outcome.last + 1)
            self._due.append((iter(ids), None))
            self._stats.confirmed_entries += len(ids)
        else:
            # Chosen ids may leave gaps of any size, so look at what was added.
            ids = sorted(entry_id for entry_id in self._callbacks if entry_id >= outcome.first)
            self._due.append((iter(ids), unknown_once_sent(outcome.error)))
        self._stats.settled_entries += len(ids)
        if not self._is_telling:
            self._tell_due()

    def _tell_due(self) -> None:
        self._is_telling = True
        failure: LedgerError | None = None
        while self._due:
            ids, error = self._due[0]
            for entry_id in ids:
                try:
                    self._callbacks.pop(entry_id)(EntryId(entry_id), error)
                except callbacks.RAISED as raised:
                    callbacks.failed(callbacks.Kind.ADD_DONE, raised)
                    failure = failure or _untaken(entry_id, raised)
            del self._due[0]
        self._is_telling = False
        if failure is not None:
            self._on_raised(failure)


def _untaken(entry_id: int, raised: BaseException) -> LedgerError:
    failure = WriteFailed(f"the callback of entry {entry_id} failed: {raised!r}")
    failure.__cause__ = raised
    return failure


def unknown_once_sent(error: LedgerError) -> LedgerError:
    """Return what adds that were sent are told when `error` ends the writer.

    Whatever the reason, some bookies may have stored them, and recovery may keep them: their
    outcome is unknown, also where that of the failed step (no replacement found) is certain.
    """
    if error.outcome is Outcome.UNKNOWN:
        return error
    unknown = WriteFailed(f"the writer ended: {error!r}")
    unknown.__cause__ = error
    return unknown
