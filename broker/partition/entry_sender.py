"""Hands a partition's entries to the writer of its ledger, while that has room.

What has no room there stays in the partition's queue, and goes when the writer says that it has.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.partition.core.log_state import LogState
from broker.partition.leader_steps import LeaderSteps
from broker.partition.ledgers import AddDone, Writer
from client.errors import LedgerError
from client.histogram import Stopwatch


class EntrySender:
    """Sends what `LogState` has for the ledger that entries go to now."""

    def __init__(
        self,
        log: LogState,
        steps: LeaderSteps,
        now_s: Stopwatch,
        on_added: AddDone,
        on_refused: Callable[[LedgerError], None],
    ) -> None:
        """`on_refused`: the ledger takes no more entries."""
        self._log = log
        self._steps = steps
        self._now_s = now_s
        self._on_added = on_added
        self._on_refused = on_refused
        self._awaited: Writer | None = None
        """Who will call when it has room."""

    def send(self) -> None:
        """Send what may go now."""
        queue, writer, now_s = self._log.queue, self._steps.writer, self._now_s()
        while queue.is_waiting:
            if not writer.room.is_free:
                self._await_room(writer)
                return
            entry = queue.take()
            entry.sent_s = now_s
            try:
                entry_id = writer.add(entry.buffers, self._on_added)
            except LedgerError as error:
                self._on_refused(error)
                return
            assert entry_id == entry.entry_id, (entry_id, entry.entry_id)

    def _await_room(self, writer: Writer) -> None:
        if self._awaited is not writer:
            self._awaited = writer
            writer.room.on_free(lambda: self._on_room(writer))

    def _on_room(self, writer: Writer) -> None:
        """A writer has room again, or has ended."""
        if self._awaited is writer:
            self._awaited = None
        if not self._steps.writer.is_ended:  # else who ended it tells
            self.send()
