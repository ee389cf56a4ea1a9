"""The transactions of one ledger, while it is written or replayed.

An index lists the aborted ones (`client/log/aborted_index.py`): in blocks, which are entries of the
ledger, and in its snapshots those that are in no block yet. A block is written when there are
enough of them, so that snapshots stay small however many transactions abort. A leader also keeps
the blocks of its active ledger in memory, 24 bytes for each aborted transaction.

The last entry of a ledger that its leader closed is a snapshot, which lists all of them. The
aborted transactions of a ledger that was closed by recovery are listed in the first snapshot of the
next ledger.
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
    """Transactions of one ledger. `block_entries`: aborted ones per block."""

    __slots__ = ("_block_entries", "aborted", "blocks", "earlier", "is_transactional", "stable_at")

    def __init__(self, block_entries: int) -> None:
        self._block_entries = block_entries
        self.is_transactional = False
        """Whether the ledger holds data of transactions, or markers."""
        self.aborted = LedgerAborted()
        self.blocks: dict[EntryId, AbortedBlock] = {}
        """All blocks of the ledger, if it is being written."""
        self.earlier: Mapping[LedgerId, LedgerAborted] = {}
        """For the first snapshot: indexes of earlier ledgers that were closed by recovery."""
        self.stable_at = NOT_ENDED
        """Everything before it is decided by the log up to the ledger's end."""

    @property
    def has_state(self) -> bool:
        """Whether there is anything to store in a snapshot."""
        return self.is_transactional or bool(self.earlier)

    def on_aborted(self, entry: AbortedTransaction, stable_offset: Offset) -> None:
        """An ABORT marker was added. `stable_offset`: first offset of the oldest transaction still
        open after it, otherwise the offset after the marker."""
        self.aborted.add(entry, stable_offset)

    @property
    def is_block_due(self) -> bool:
        """Whether to write a block now."""
        return len(self.aborted.rest) >= self._block_entries

    def on_block_written(self, entry_id: EntryId) -> None:
        """The block of everything that was in no block yet is entry `entry_id` of the ledger."""
        self.blocks[entry_id] = self.aborted.on_block_written(entry_id)

    def within(self, fetch_offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
        """Return those with data or their marker in [fetch_offset, end_offset)."""
        return self.aborted.within(fetch_offset, end_offset, self.blocks)

    # --- snapshots and facts ------------------------------------------------------------

    def snapshot(self, *, is_first: bool) -> SnapshotTransactions:
        """Return the content of a snapshot; the ledger's first one includes earlier ledgers."""
        earlier = self.earlier if is_first else {}
        return SnapshotTransactions(self.is_transactional, self.aborted, earlier)

    def restore(self, known: SnapshotTransactions) -> None:
        """Restore the state from a snapshot of the ledger; blocks before it stay unread."""
        self.is_transactional = known.is_transactional
        self.aborted = known.aborted

    def facts(self, end_offset: Offset, place: SnapshotPlace) -> TransactionFacts | None:
        """Return the ledger's facts for the list; the ledger ends at `end_offset`.

        `place`: the snapshot that lists the aborted transactions.
        """
        assert self.stable_at != NOT_ENDED
        stable = min(self.stable_at, end_offset)
        if not self.is_transactional and stable == end_offset:
            return None
        count = len(self.aborted)
        return TransactionFacts(self.is_transactional, count, place if count else None, stable)
