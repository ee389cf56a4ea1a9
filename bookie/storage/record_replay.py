"""What the records of the log say, put into the index and the ledger table while a bookie starts.

Records come in log order. Entries and ledgers are collected and go into the index by the thousand;
a deletion goes there at once, with everything before it. A record that was applied before, by an
earlier start, changes nothing: the same places, keys and fences are written again, and a file's
tally counts no record twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bookie.storage.core.append_log import (
    BEGINNING,
    RECORD_HEADER_BYTES,
    Deletion,
    Kind,
    Location,
    LogPosition,
    Record,
    ids_of,
    is_copy,
    ledger_of,
    unpack_deletion,
    unpack_ledger,
)
from bookie.storage.core.ledger_guard import LedgerTable
from bookie.storage.index.index import EntryPlace, Index, Tally, record_of
from client.ids import LedgerId

_BATCH_ENTRIES: Final = 4096
_CLEARED_AT_ONCE: Final = 4096


class RecordReplay:
    """The records of one replay. Blocks, as the index does; raises CorruptIndex."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.ledgers = LedgerTable()
        self.count = 0
        """Records applied."""
        self._tally = Tally()
        self._tallied = 0
        """Number of the file that `_tally` is about."""
        self._entries: list[EntryPlace] = []
        self._changed: dict[LedgerId, None] = {}

    def begin_file(self, number: int, start: int) -> None:
        """The next records are those of this file, from the position `start` on."""
        self._tallied, self._tally = number, self._index.tally(number) or Tally()
        self._tally.assume_counted(start)

    def tally_of(self, number: int) -> Tally:
        """Return the tally of a file: the last one begun, or one without records."""
        return self._tally if self._tallied == number else Tally()

    def load_ledgers(self) -> None:
        """Begin with what the index knows; finish the deletions that were under way."""
        for ledger_id, record in self._index.ledgers():
            self.ledgers.restore(
                ledger_id,
                record.master_key,
                fenced=record.fenced,
                explicit_lac=record.explicit_lac,
            )
        for ledger_id, deletion, is_cleared in list(self._index.deletions()):
            if not is_cleared:
                self._clear(ledger_id)
            self._index.settle_deletion(ledger_id, deletion if deletion.fenced else None)
            if deletion.fenced and self.ledgers.get(ledger_id) is None:
                self.ledgers.bury(ledger_id, deletion)

    def apply(self, number: int, record: Record) -> None:
        """Carry out what a record of the file under way says."""
        self.count += 1
        ledger_id = ledger_of(record.body)
        is_new = record.position >= self._tally.end
        if is_new:
            self._tally.end = record.end
        if record.kind is Kind.DELETE:
            self._apply_deletion(number, record)
            return
        if is_new:
            self._tally.add(ledger_id, RECORD_HEADER_BYTES + len(record.body))
        ledger = self.ledgers.get(ledger_id)
        if record.kind is Kind.ENTRY:
            _, entry_id = ids_of(record.body)
            location = Location(number, record.position, len(record.body))
            self._entries.append((ledger_id, entry_id, location))
            if ledger is None:
                # Its LEDGER record was in damaged bytes: the entry is here, the key is not.
                self._restore(ledger_id, b"", fenced=False)
            if len(self._entries) >= _BATCH_ENTRIES:
                self.write_index(LogPosition(number, record.end))
        elif record.kind is Kind.EXPLICIT_LAC:
            if ledger is not None:
                ledger.explicit_lac = bytes(record.body)
                self._changed[ledger_id] = None
        else:
            _, master_key = unpack_ledger(record.body)
            fenced = record.kind is Kind.FENCE or (ledger is not None and ledger.fenced)
            self._restore(ledger_id, master_key, fenced=fenced)

    def _apply_deletion(self, number: int, record: Record) -> None:
        """Everything before about a ledger is void; what follows is another life of it."""
        ledger_id, deletion = unpack_deletion(record.body)
        self._tally.add_deletion(deletion.time_ms)
        self.write_index(LogPosition(number, record.end), deletions=[(ledger_id, deletion)])
        self._clear(ledger_id)
        self._index.settle_deletion(ledger_id, deletion if deletion.fenced else None)
        self.ledgers.bury(ledger_id, deletion)

    def _clear(self, ledger_id: LedgerId) -> None:
        while self._index.clear_entries(ledger_id, _CLEARED_AT_ONCE):
            pass

    def _restore(self, ledger_id: LedgerId, master_key: bytes, *, fenced: bool) -> None:
        known = self.ledgers.get(ledger_id)
        self.ledgers.restore(
            ledger_id,
            known.master_key if known is not None and known.master_key else master_key,
            fenced=fenced,
            explicit_lac=known.explicit_lac if known is not None else None,
        )
        self._changed[ledger_id] = None

    def write_index(
        self, end: LogPosition, *, deletions: Sequence[tuple[LedgerId, Deletion]] = ()
    ) -> None:
        """Put what was applied so far into the index, which then reflects the log up to `end`."""
        changed = [
            (ledger.ledger_id, record_of(ledger))
            for ledger_id in self._changed
            if (ledger := self.ledgers.get(ledger_id)) is not None
        ]
        # A copy says nothing about how far the log itself was durable.
        reached = BEGINNING if is_copy(end.number) else end
        self._index.write(self._entries, changed, reached, deletions=deletions)
        self._index.set_tallies([(self._tallied, self._tally)] if self._tallied else [])
        self._entries = []
        self._changed = {}
