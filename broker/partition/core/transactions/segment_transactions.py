"""What transactions leave in one ledger, while it is written or read back.

The aborted ones are listed in an index (`client/log/aborted_index.py`): in blocks, which are
entries of the ledger, and in its snapshots what is in no block yet. A block is due when enough have
gathered, so that a snapshot stays small however many transactions abort. A leader has the blocks of
the ledger that it writes in memory, too, 24 bytes for each aborted transaction.

A ledger that its leader ends has a snapshot as its last entry, which lists all of them. What is
aborted in one that a recovery ended is listed in the first snapshot of the ledger after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from client.ids import EntryId, LedgerId, Offset
from client.log.aborted_index import LedgerAborted
from client.log.aborted_transactions import AbortedBlock, AbortedTransaction
from client.log.segment import SnapshotPlace, TransactionFacts
from client.log.snapshot import SnapshotTransactions

NOT_ENDED: Final = Offset(-1)


class SegmentTransactions:
    """Transactions of one ledger. `block_entries`: how many aborted ones make a block."""

    __slots__ = ("_block_entries", "aborted", "blocks", "earlier", "is_transactional", "stable_at")

    def __init__(self, block_entries: int) -> None:
        self._block_entries = block_entries
        self.is_transactional = False
        """Whether the ledger holds data of transactions, or markers."""
        self.aborted = LedgerAborted()
        self.blocks: dict[EntryId, AbortedBlock] = {}
        """Of the ledger that is written: all blocks on it."""
        self.earlier: Mapping[LedgerId, LedgerAborted] = {}
        """For the first snapshot: the indexes of ledgers that recoveries have ended."""
        self.stable_at = NOT_ENDED
        """Everything before it is decided by what the log holds up to the ledger's end."""

    @property
    def is_known(self) -> bool:
        """Whether there is anything to be told in a snapshot."""
        return self.is_transactional or bool(self.earlier)

    def on_aborted(self, entry: AbortedTransaction, stable_offset: Offset) -> None:
        """An ABORT marker is in the ledger. `stable_offset`: first offset of what is still open
        behind it, else the offset after it."""
        self.aborted.add(entry, stable_offset)

    @property
    def is_block_due(self) -> bool:
        """Whether what is in no block should be written as one now."""
        return len(self.aborted.rest) >= self._block_entries

    def on_block_written(self, entry_id: EntryId) -> None:
        """What was in no block is the ledger's entry `entry_id`."""
        self.blocks[entry_id] = self.aborted.on_block_written(entry_id)

    def within(self, fetch_offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
        """Return those with something in [fetch_offset, end_offset), marker or data."""
        return self.aborted.within(fetch_offset, end_offset, self.blocks)

    # --- snapshots and facts ------------------------------------------------------------

    def snapshot(self, *, is_first: bool) -> SnapshotTransactions:
        """Return what a snapshot says; the ledger's first one speaks of earlier ledgers, too."""
        earlier = self.earlier if is_first else {}
        return SnapshotTransactions(self.is_transactional, self.aborted, earlier)

    def restore(self, known: SnapshotTransactions) -> None:
        """Go on from a snapshot of the ledger; blocks before it stay unread."""
        self.is_transactional = known.is_transactional
        self.aborted = known.aborted

    def facts(self, end_offset: Offset, place: SnapshotPlace) -> TransactionFacts | None:
        """Return what will be listed of the ledger, which ends at `end_offset`.

        `place`: the snapshot that lists what is aborted.
        """
        assert self.stable_at != NOT_ENDED
        stable = min(self.stable_at, end_offset)
        if not self.is_transactional and stable == end_offset:
            return None
        count = len(self.aborted)
        return TransactionFacts(self.is_transactional, count, place if count else None, stable)
