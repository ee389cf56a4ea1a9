"""Where the aborted transactions of one ledger are listed, so that no reader needs to scan it.

A ledger lists those whose ABORT marker is in it: in blocks, which are entries of the ledger
(`aborted_transactions.py`), and the newest ones, which are in no block yet, in the index itself.
Every snapshot holds the index of its ledger. Of a ledger that nothing can be added to, the facts in
the segment list name the snapshot that holds all of it: its own last one, or, if its writer did not
end it, the first one of the ledger that followed (`snapshot.py`).

    count i32, per block: entry id i64, transactions i32, smallest first offset i64,
    last offset of the last i64; then what is in no block, as a block

Whoever reads a range of offsets asks the index of the segment where it begins, and those of the
segments behind, up to one at whose end everything before the end of the range is decided: there
may be ABORT markers for it (`index_run`). Of an index it asks only the blocks that `wanted` names.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import EntryId, Offset
from client.log.aborted_transactions import AbortedBlock, AbortedTransaction, decode_block
from client.log.segment import Segment

_COUNT: Final = struct.Struct(">i")
_REF: Final = struct.Struct(">qiqq")


class BlockRef(NamedTuple):
    """A block on the ledger."""

    entry_id: EntryId
    aborted_count: int
    first_min: Offset
    """Smallest first offset of its transactions."""
    last_offset: Offset
    """Of the last one's marker."""


class LedgerAborted:
    """The index of one ledger."""

    __slots__ = ("refs", "rest")

    def __init__(self, refs: Iterable[BlockRef] = (), rest: AbortedBlock | None = None) -> None:
        self.refs = list(refs)
        """In log order."""
        self.rest = AbortedBlock() if rest is None else rest
        """What is in no block yet."""

    def __len__(self) -> int:
        """Return how many transactions it lists."""
        return sum(ref.aborted_count for ref in self.refs) + len(self.rest)

    # --- written ------------------------------------------------------------------------

    def add(self, entry: AbortedTransaction, stable_offset: Offset) -> None:
        """An ABORT marker is in the log. `stable_offset`: what is decided once it is confirmed."""
        self.rest.append(entry, stable_offset)

    def on_block_written(self, entry_id: EntryId) -> AbortedBlock:
        """`rest`, which is not empty, is the ledger's entry `entry_id`: return it."""
        block = self.rest
        assert len(block)
        assert not self.refs or entry_id > self.refs[-1].entry_id
        self.refs.append(BlockRef(entry_id, len(block), block.first_min, block.last_offset))
        self.rest = AbortedBlock(block.stable_offset)
        return block

    # --- read ---------------------------------------------------------------------------

    def wanted(self, fetch_offset: Offset, end_offset: Offset) -> list[EntryId]:
        """Return the entries of the blocks that may list something in the range."""
        start = bisect_left(self.refs, fetch_offset, key=attrgetter("last_offset"))
        return [ref.entry_id for ref in self.refs[start:] if ref.first_min < end_offset]

    def within(
        self,
        fetch_offset: Offset,
        end_offset: Offset,
        blocks: Mapping[EntryId, AbortedBlock],
    ) -> list[AbortedTransaction]:
        """Return those with something in the range, by last offset. `blocks`: all that is wanted,
        by entry id."""
        found: list[AbortedTransaction] = []
        for entry_id in self.wanted(fetch_offset, end_offset):
            found += blocks[entry_id].within(fetch_offset, end_offset)
        return found + self.rest.within(fetch_offset, end_offset)

    # --- bytes --------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return it as bytes."""
        refs = (_REF.pack(*ref) for ref in self.refs)
        return b"".join([_COUNT.pack(len(self.refs)), *refs, self.rest.encode()])


def decode_index(data: memoryview) -> tuple[LedgerAborted, memoryview]:
    """Read an encoded index; return it and the bytes after it. Raises LogCorrupt."""
    try:
        (count,) = _COUNT.unpack_from(data)
    except struct.error as error:
        raise LogCorrupt(f"index of aborted transactions, {len(data)} bytes") from error
    end = _COUNT.size + count * _REF.size
    if not _COUNT.size <= end <= len(data):
        raise LogCorrupt(f"{len(data)} bytes cannot list {count} blocks of aborted transactions")
    refs: list[BlockRef] = []
    for entry_id, size, first_min, last_offset in _REF.iter_unpack(data[_COUNT.size : end]):
        ref = BlockRef(EntryId(entry_id), size, Offset(first_min), Offset(last_offset))
        before = refs[-1] if refs else BlockRef(EntryId(-1), 1, Offset(0), Offset(-1))
        if not (
            size > 0
            and entry_id > before.entry_id
            and 0 <= first_min < last_offset > before.last_offset
        ):
            raise LogCorrupt(f"block of aborted transactions {ref} after {before}")
        refs.append(ref)
    rest, after = decode_block(data[end:])
    if refs and len(rest) and rest[0].last_offset <= refs[-1].last_offset:
        raise LogCorrupt(f"aborted transaction {rest[0]} after block {refs[-1]}")
    return LedgerAborted(refs, rest), after


def index_run(segments: Sequence[Segment], end_offset: Offset) -> tuple[list[Segment], bool]:
    """Return the sealed segments whose indexes list all that is aborted in a range that begins in
    the first of `segments`, which are in log order; and whether that is certain.

    If it is not, everything is decided only up to the last one's `stable_offset`: a later segment,
    or the leader, knows more.
    """
    found: list[Segment] = []
    for segment in segments:
        facts = segment.facts
        if facts is None:
            return found, False
        if facts.transactions is not None and facts.transactions.aborted_at is not None:
            found.append(segment)
        if facts.stable_offset >= end_offset:
            return found, True
    return found, False
