"""Hands a partition's entries to the writer of its ledger, while that has room.

What has no room there stays in the partition's queue, and goes when the writer says that it has.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.partition.core.log_state import LogState
from broker.partition.leading.leader_steps import LeaderSteps
from broker.partition.ledgers import AddDone, Writer
from client.errors import LedgerError
from client.held_memory import HeldMemory
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
        memory: HeldMemory,
    ) -> None:
        """`on_refused`: the ledger takes no more entries. `memory`: where bytes are counted until a
        writer counts them."""
        self._log = log
        self._steps = steps
        self._now_s = now_s
        self._on_added = on_added
        self._on_refused = on_refused
        self._memory = memory
        self._unsent_bytes = 0
        """Of accepted batches that no writer has."""
        self._awaited: Writer | None = None
        """Who will call when it has room."""

    @property
    def has_ended(self) -> bool:
        """Whether the ledger that entries go to takes no more."""
        return self._steps.writer.is_ended

    def on_accepted(self, size: int) -> None:
        """A batch was accepted: it is held until a writer has it, or leadership ends."""
        self._unsent_bytes += size
        self._memory.take(size)

    def stop(self) -> None:
        """Leadership is over: what no writer has is held no longer."""
        size, self._unsent_bytes = self._unsent_bytes, 0
        self._memory.give(size)

    def send(self) -> None:
        """Send what may go now."""
        queue, writer, now_s = self._log.queue, self._steps.writer, self._now_s()
        while queue.waiting:
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
            if entry.appends:
                self._unsent_bytes -= entry.size
                self._memory.size -= entry.size  # the writer has taken it: no room was made

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
