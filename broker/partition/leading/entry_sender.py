"""Hands a partition's entries to the writer of its ledger, while the writer has room.

The other entries stay in the partition's queue until the writer has room again. Large entries also
take turns with those of other partitions (`send_turns.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.partition.core.log_state import LogState
from broker.partition.leading.core.send_turn import LARGE_BYTES
from broker.partition.leading.leader_steps import LeaderSteps
from broker.partition.leading.send_turns import SendTurns
from broker.partition.ledgers import AddDone, Writer
from client.errors import LedgerError
from client.held_memory import HeldMemory
from client.histogram import Stopwatch


class EntrySender:
    """Sends the waiting entries of `LogState` to the current ledger."""

    __slots__ = (
        "_awaited",
        "_log",
        "_memory",
        "_now_s",
        "_on_added",
        "_on_refused",
        "_turns",
        "_unsent_bytes",
        "steps",
    )

    def __init__(
        self,
        log: LogState,
        steps: LeaderSteps,
        now_s: Stopwatch,
        on_added: AddDone,
        on_refused: Callable[[LedgerError], None],
        memory: HeldMemory,
        turns: SendTurns,
    ) -> None:
        """`on_refused`: called when the ledger accepts no more entries. `memory`: counts bytes
        until a writer counts them. `turns`: shared by all partitions."""
        self._log = log
        self.steps = steps
        """Has the writer of the current ledger."""
        self._now_s = now_s
        self._on_added = on_added
        self._on_refused = on_refused
        self._memory = memory
        self._turns = turns
        self._unsent_bytes = 0
        """Bytes of accepted batches that no writer has yet."""
        self._awaited: Writer | None = None
        """The writer whose room is waited for."""

    def on_accepted(self, size: int) -> None:
        """A batch was accepted: it is counted until a writer has it or the leadership ends."""
        self._unsent_bytes += size
        self._memory.take(size)

    def stop(self) -> None:
        """The leadership has ended: release what no writer has."""
        self._turns.leave(self)
        size, self._unsent_bytes = self._unsent_bytes, 0
        self._memory.give(size)

    def send(self) -> None:
        """Send entries as far as possible now."""
        queue, writer, now_s = self._log.queue, self.steps.writer, self._now_s()
        room = writer.room
        while queue.waiting:
            if not room.is_free:
                self._await_room(writer)
                return
            size = queue.next_size
            if size > LARGE_BYTES and not self._turns.admits(self, size, is_shared=room.is_shared):
                return
            entry = queue.take()
            entry.sent_s = now_s
            try:
                entry_id = writer.add(entry.buffers, self._on_added)
            except LedgerError as error:
                self._on_refused(error)
                return
            assert entry_id == entry.entry_id, (entry_id, entry.entry_id)
            if size > LARGE_BYTES:
                self._turns.on_sent(size)
            if entry.appends:
                self._unsent_bytes -= size
                self._memory.size -= size  # now counted by the writer: no memory became free

    def on_turn(self) -> None:
        """Large entries may be sent again."""
        if not self.steps.writer.is_ended:  # otherwise its end is reported elsewhere
            self.send()

    def _await_room(self, writer: Writer) -> None:
        if self._awaited is not writer:
            self._awaited = writer
            writer.room.on_free(lambda: self._on_room(writer))

    def _on_room(self, writer: Writer) -> None:
        """A writer has room again, or has ended."""
        if self._awaited is writer:
            self._awaited = None
        self.on_turn()
