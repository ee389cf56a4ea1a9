"""The aborted transactions of the ledger that is being written, for readers and the next leader.

All of them are in memory; on the ledger they are in blocks. When `block_entries` have gathered, a
block is due, and the rest follows when the ledger is complete: its blocks then say everything
about its markers, and no reader needs to scan it. A snapshot holds where the blocks are, and what
is in none yet, so that it stays small however many transactions abort.

What a range is told may end in a later ledger: `client.log.aborted_transactions.aborted_within`
goes on there until the stable offset is reached.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Final

from client.errors import LogCorrupt
from client.ids import EntryId, Offset
from client.log.aborted_transactions import (
    AbortedBlock,
    AbortedTransaction,
    aborted_within,
    decode_block,
)

BLOCK_ENTRIES: Final = 1_000

_COUNT: Final = struct.Struct(">i")
_ENTRY_ID: Final = struct.Struct(">q")


class AbortedIndex:
    """Aborted transactions whose markers are in one ledger, in the order of their markers."""

    def __init__(self, *, block_entries: int = BLOCK_ENTRIES) -> None:
        self._block_entries = block_entries
        self.entry_ids: list[EntryId] = []
        """Of the blocks on the ledger, in log order."""
        self._blocks: list[AbortedBlock] = []
        """Their contents: of all of them, or, until they are read after a restore, of none."""
        self._last_offsets: list[Offset] = []
        self.rest = AbortedBlock()
        """What is in no block yet."""

    def __len__(self) -> int:
        return sum(map(len, self._blocks)) + len(self.rest)

    def add(self, entry: AbortedTransaction, stable_offset: Offset) -> None:
        """An ABORT marker was accepted, or found in the log.

        `stable_offset`: first offset of what is still open behind it, else the offset after it.
        """
        self.rest.append(entry, stable_offset)

    @property
    def is_block_due(self) -> bool:
        """Whether `rest` should be written now."""
        return len(self.rest) >= self._block_entries

    def complete(self, stable_offset: Offset) -> bool:
        """The ledger ends, with everything before `stable_offset` decided once it is confirmed.

        Returns whether `rest` has to be written, so that its blocks say all of it.
        """
        assert stable_offset >= self.rest.stable_offset
        self.rest.stable_offset = stable_offset
        return len(self.rest) > 0

    def on_block_written(self, entry_id: EntryId) -> None:
        """`rest` is the ledger's entry `entry_id`: because it was due, or to end the ledger."""
        assert len(self._blocks) == len(self.entry_ids), "blocks are unread"
        assert not self.entry_ids or entry_id > self.entry_ids[-1]
        self.entry_ids.append(entry_id)
        self._blocks.append(self.rest)
        self._last_offsets.append(self.rest.last_offset)
        self.rest = AbortedBlock(self.rest.stable_offset)

    def within(self, fetch_offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
        """Return those with something in [fetch_offset, end_offset), marker or data."""
        assert len(self._blocks) == len(self.entry_ids), "blocks are unread"
        start = bisect_left(self._last_offsets, fetch_offset)
        return aborted_within((*self._blocks[start:], self.rest), fetch_offset, end_offset)

    def encode(self) -> bytes:
        """Return it as bytes: block count i32, entry ids i64 of the blocks, `rest` as a block."""
        ids = (_ENTRY_ID.pack(entry_id) for entry_id in self.entry_ids)
        return b"".join([_COUNT.pack(len(self.entry_ids)), *ids, self.rest.encode()])

    def restore(self, data: memoryview) -> memoryview:
        """Replace it by an encoded one; return the bytes after it. Raises LogCorrupt.

        The blocks at `entry_ids` are for `on_blocks_read`, if it is to answer anything.
        """
        try:
            (count,) = _COUNT.unpack_from(data)
        except struct.error as error:
            raise LogCorrupt(f"index of aborted transactions, {len(data)} bytes") from error
        end = _COUNT.size + count * _ENTRY_ID.size
        if not _COUNT.size <= end <= len(data):
            raise LogCorrupt(
                f"{len(data)} bytes cannot list {count} blocks of aborted transactions"
            )
        ids = [EntryId(entry_id) for (entry_id,) in _ENTRY_ID.iter_unpack(data[_COUNT.size : end])]
        rest, after = decode_block(data[end:])
        self.entry_ids, self.rest = ids, rest
        self._blocks, self._last_offsets = [], []
        return after

    def on_blocks_read(self, blocks: list[AbortedBlock]) -> None:
        """Take the contents of all blocks, in the order of `entry_ids`. Raises LogCorrupt."""
        assert len(blocks) == len(self.entry_ids)
        following = [*blocks[1:], self.rest]
        for block, after in zip(blocks, following, strict=False):
            if len(after) and after[0].last_offset <= block.last_offset:
                raise LogCorrupt(f"block of aborted transactions goes back to {after[0]}")
        self._blocks = blocks
        self._last_offsets = [block.last_offset for block in blocks]
