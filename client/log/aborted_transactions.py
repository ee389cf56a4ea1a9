"""The aborted transactions of a log: what read_committed readers must pass over.

Covers their list in an answer, and their block, an internal entry of type 2:

    version i16, stable offset i64, count i32,
    entries (producer id i64, first offset i64, last offset i64), by last offset

The last offset is that of the ABORT marker. The stable offset is what was decided when the block
was complete: everything before it, so that no later block has anything to say about it.

A list is for one range of offsets that was read, and belongs to that read. An entry that is
missing shows aborted data. One too many whose marker lies before the range hides the producer's
next transaction, for readers wait for a marker that they never meet.

*Index.* Where those of one ledger are listed, so that no reader needs to scan it (`LedgerAborted`).
A ledger lists those whose ABORT marker is in it: in blocks, and the newest ones, which are in no
block yet, in the index itself. Every snapshot holds the index of its ledger. Of a ledger that
nothing can be added to, the facts in the segment list name the snapshot that holds all of it: its
own last one, or, if its writer did not end it, the first one of the ledger that followed
(`snapshot.py`).

    count i32, per block: entry id i64, transactions i32, smallest first offset i64,
    last offset of the last i64; then what is in no block, as a block

Whoever reads a range of offsets asks the index of the segment where it begins, and those of the
segments behind, up to one at whose end everything before the end of the range is decided: there
may be ABORT markers for it (`index_run`). Of an index it asks only the blocks that `wanted` names.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, Offset, ProducerId
from client.log.entry_format import open_internal, seal_internal
from client.log.segment import Segment
from client.wire.kafka.batches.records import Buffer

ABORTED_TYPE: Final = 2
ABORTED_VERSION: Final = 1
FIRST_OFFSET: Final = Offset(0)

_HEAD: Final = struct.Struct(">hqi")
_ENTRY: Final = struct.Struct(">qqq")

_COUNT: Final = struct.Struct(">i")
_REF: Final = struct.Struct(">qiqq")


class AbortedTransaction(NamedTuple):
    """Data of a producer from `first_offset` up to its marker at `last_offset`."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset


class AbortedBlock:
    """A run of aborted transactions in the order of their markers, 24 bytes each in memory, too."""

    __slots__ = ("_first", "_last", "_producers", "first_min", "stable_offset")

    def __init__(self, stable_offset: Offset = FIRST_OFFSET) -> None:
        self._producers = array("q")
        self._first = array("q")
        self._last = array("q")
        self.first_min = Offset(2**63 - 1)
        """Smallest first offset of all."""
        self.stable_offset = stable_offset
        """Whatever is aborted before it is in this block or in an earlier one."""

    def __len__(self) -> int:
        return len(self._last)

    def __getitem__(self, at: int) -> AbortedTransaction:
        return AbortedTransaction(
            ProducerId(self._producers[at]), Offset(self._first[at]), Offset(self._last[at])
        )

    @property
    def last_offset(self) -> Offset:
        """Last offset of the last one; -1: there is none."""
        return Offset(self._last[-1] if self._last else -1)

    def append(self, entry: AbortedTransaction, stable_offset: Offset) -> None:
        """Add the next one. `stable_offset`: what is decided once its marker is confirmed."""
        assert entry.first_offset < entry.last_offset > self.last_offset, entry
        assert stable_offset >= self.stable_offset
        self._producers.append(entry.producer_id)
        self._first.append(entry.first_offset)
        self._last.append(entry.last_offset)
        self.first_min = min(self.first_min, entry.first_offset)
        self.stable_offset = stable_offset

    def within(self, fetch_offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
        """Return those with something in [fetch_offset, end_offset), marker or data."""
        if self.first_min >= end_offset:
            return []
        start = bisect_left(self._last, fetch_offset)
        first = self._first
        return [self[at] for at in range(start, len(first)) if first[at] < end_offset]

    def encode(self) -> bytes:
        """Return the body of its entry, also for use inside another one."""
        rows = (_ENTRY.pack(*self[at]) for at in range(len(self)))
        return b"".join([_HEAD.pack(ABORTED_VERSION, self.stable_offset, len(self)), *rows])


def decode_block(data: memoryview) -> tuple[AbortedBlock, memoryview]:
    """Read an encoded block; return it and the bytes after it. Raises LogCorrupt."""
    try:
        version, stable_offset, count = _HEAD.unpack_from(data)
    except struct.error as error:
        raise LogCorrupt(f"aborted transactions of {len(data)} bytes") from error
    if version != ABORTED_VERSION:
        raise LogCorrupt(f"aborted transactions of version {version}")
    end = _HEAD.size + count * _ENTRY.size
    if not _HEAD.size <= end <= len(data):
        raise LogCorrupt(f"{len(data)} bytes cannot list {count} aborted transactions")
    block = AbortedBlock()
    for producer_id, first, last in _ENTRY.iter_unpack(data[_HEAD.size : end]):
        if not 0 <= first < last > block.last_offset:
            raise LogCorrupt(f"aborted transaction [{first}, {last}] after {block.last_offset}")
        block.append(
            AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last)), Offset(0)
        )
    block.stable_offset = Offset(stable_offset)
    return block, data[end:]


def seal_block(block: AbortedBlock, log_end_offset: Offset, leader_epoch: LeaderEpoch) -> bytes:
    """Return the internal entry of a block."""
    return seal_internal(log_end_offset, leader_epoch, ABORTED_TYPE, block.encode())


def open_block(payload: Buffer) -> AbortedBlock:
    """Verify and open the internal entry of a block. Raises LogCorrupt."""
    entry = open_internal(payload)
    if entry.type != ABORTED_TYPE:
        raise LogCorrupt(f"internal entry of type {entry.type} lists no aborted transactions")
    block, rest = decode_block(entry.body)
    if rest:
        raise LogCorrupt(f"{len(rest)} bytes follow {len(block)} aborted transactions")
    return block


def aborted_within(
    blocks: Iterable[AbortedBlock], fetch_offset: Offset, end_offset: Offset
) -> list[AbortedTransaction]:
    """Return what blocks in log order say about the range [fetch_offset, end_offset).

    Takes no more of them than it needs. To be sure of all of it, the last one's stable offset must
    be at least `end_offset`.
    """
    found: list[AbortedTransaction] = []
    for block in blocks:
        if block.last_offset >= fetch_offset:
            found += block.within(fetch_offset, end_offset)
        if block.stable_offset >= end_offset:
            break
    return found


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
