"""What one writer holds in memory.

An entry is held as long as the pipeline may still send it, or a connection has a copy of it that is
neither answered nor given up. That includes copies for bookies that were replaced meanwhile, and
those of a writer that failed.
"""

from __future__ import annotations

from client.held_memory import HeldMemory
from client.ids import EntryId
from client.ledger.core.pending_add import AddEntry


class WriterMemory:
    """The entries of one writer that are held. Told of every copy sent, and of every answer after
    the pipeline's core was."""

    __slots__ = ("_entries", "_memory")

    def __init__(self, memory: HeldMemory) -> None:
        """`memory`: where the bytes are counted with those of others."""
        self._memory = memory
        self._entries: dict[int, AddEntry] = {}
        """By entry id: those that are held."""

    def on_sent(self, entry: AddEntry, copies: int) -> None:
        """So many copies of an entry are sent."""
        if entry.entry_id not in self._entries:
            self._entries[entry.entry_id] = entry
            self._memory.size += entry.size  # `take`, without a call for every entry
        entry.unanswered += copies

    def on_answer(self, entry_id: EntryId) -> None:
        """A copy was answered, or is given up."""
        entry = self._entries[entry_id]
        entry.unanswered -= 1
        if not entry.unanswered and not entry.is_pending:
            self._let_go(entry)

    def on_confirmed(self, first: EntryId, last: EntryId) -> None:
        """These entries are confirmed."""
        for entry_id in range(first, last + 1):
            entry = self._entries.get(entry_id)
            if entry is not None and not (entry.is_pending or entry.unanswered):
                self._let_go(entry)

    def look(self) -> None:
        """Let go of what nothing more will be heard of: the writer has failed, its ensemble has
        changed, or it does not send again what a bookie had no room for."""
        for entry in list(self._entries.values()):
            if not (entry.is_pending or entry.unanswered):
                self._let_go(entry)

    def _let_go(self, entry: AddEntry) -> None:
        del self._entries[entry.entry_id]
        self._memory.give(entry.size)
