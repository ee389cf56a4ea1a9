"""What one writer holds in memory, and whether it may be given more.

An entry is held as long as the pipeline may still send it, or a connection has a copy of it that is
neither answered nor given up. That includes copies for bookies that were replaced meanwhile, and
those of a writer that failed.
"""

from __future__ import annotations

import asyncio

from client.held_memory import HeldMemory
from client.ids import EntryId
from client.ledger.config import LedgerClientConfig
from client.ledger.core.adds import Adds
from client.ledger.core.pending_add import AddEntry
from client.ledger.write.core.writer_window import Company, WriterWindow


class WriterRoom:
    """The entries of one writer that are held. Told of every copy sent, and of every answer after
    the pipeline's core was."""

    __slots__ = (
        "_adds",
        "_company",
        "_entries",
        "_loop",
        "_memory",
        "_unanswered_bytes_max",
        "_window",
    )

    def __init__(
        self, adds: Adds, config: LedgerClientConfig, memory: HeldMemory, company: Company
    ) -> None:
        """`memory`: where the bytes are counted with those of others. `company`: of the writers
        that send to the same bookies."""
        self._adds = adds
        self._memory = memory
        self._company = company
        self._loop = asyncio.get_running_loop()
        self._window = WriterWindow(
            company,
            config.writer_in_flight_bytes_max,
            shared_bytes_min=config.writer_shared_bytes_min,
            target_s=config.writer_shared_delay_ms / 1000,
        )
        self._unanswered_bytes_max = config.writer_unanswered_bytes_max
        self._entries: dict[int, AddEntry] = {}
        """By entry id: those that are held."""

    @property
    def is_free(self) -> bool:
        """Whether the next entry may be sent; one that is larger than the limits goes alone."""
        adds = self._adds
        return (
            adds.length - adds.confirmed_length < self._window.size
            and adds.pending_bytes < self._unanswered_bytes_max
        )

    def on_sent(self, entry: AddEntry, copies: int) -> None:
        """So many copies of an entry are sent."""
        if entry.entry_id not in self._entries:
            if self._company.current is not self:
                self._company.change(self, self._loop.time())
            self._entries[entry.entry_id] = entry
            self._memory.take(entry.size)
        entry.unanswered += copies

    def on_answer(self, entry_id: EntryId) -> None:
        """A copy was answered, or is given up."""
        entry = self._entries[entry_id]
        entry.unanswered -= 1
        if not entry.unanswered and not entry.is_pending:
            self._let_go(entry)

    def on_confirmed(self, first: EntryId, last: EntryId) -> None:
        """These entries are confirmed."""
        self._window.on_confirmed(self._adds.confirmed_length, self._loop.time())
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
