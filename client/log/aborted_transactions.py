"""The aborted transactions of a log: what read_committed readers must pass over.

Covers their list in an answer, and their block, an internal entry of type 2:

    version i16, stable offset i64, count i32,
    entries (producer id i64, first offset i64, last offset i64), by last offset

The last offset is that of the ABORT marker. The stable offset is what was decided when the block
was complete: everything before it, so that no later block has anything to say about it.

A list is for one range of offsets that was read, and belongs to that read. An entry that is
missing shows aborted data. One too many whose marker lies before the range hides the producer's
next transaction, for readers wait for a marker that they never meet.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, Offset, ProducerId
from client.log.entry_format import open_internal, seal_internal
from client.wire.kafka.batches.records import Buffer

ABORTED_TYPE: Final = 2
ABORTED_VERSION: Final = 1
FIRST_OFFSET: Final = Offset(0)

_HEAD: Final = struct.Struct(">hqi")
_ENTRY: Final = struct.Struct(">qqq")


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
