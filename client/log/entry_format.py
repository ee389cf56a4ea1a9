"""The format of what a partition stores in a ledger entry.

An entry holds one or more whole record batches with final offsets and epochs, exactly as
consumers get them, or one internal entry, which consumers never get. Both kinds share their first
21 bytes, so that offset, length, epoch, kind and checksum of any entry are read alike:

            batch                     internal entry
     0      base_offset        i64    log end offset: where a batch written next would begin
     8      batch_length       i32    bytes after this field
    12      leader_epoch       i32
    16      magic = 2          i8     0x51, no magic of Kafka's
    17      crc                u32    CRC-32C of everything from byte 21
    21      attributes ...            type i8 (1 = snapshot, 2 = aborted
                                      transactions, 3 = changes of share
                                      groups), then the type's body

The first eight bytes never decrease from entry to entry: a binary search over the entries of a
ledger needs nothing but them. The first entry of every ledger is a snapshot.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from client.errors import LogCorrupt, RemoteProtocolError
from client.ids import LeaderEpoch, Offset
from client.wire.kafka.batches.records import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    headers,
    peek_base_offset,
)

INTERNAL_MAGIC: Final = 0x51
MAGIC_POSITION: Final = 16
SNAPSHOT_TYPE: Final = 1
SHARE_TYPE: Final = 3

_BATCH_EXTENT: Final = struct.Struct(">qi4xb6xi")
"""base_offset, batch_length, magic, last_offset_delta of a batch's header."""
_INTERNAL: Final = struct.Struct(">qiibIb")
_TYPED_BODY_START: Final = _INTERNAL.size


class Internal(NamedTuple):
    """An internal entry: where it stands in the log, and its typed body."""

    log_end_offset: Offset
    leader_epoch: LeaderEpoch
    type: int
    body: memoryview


def seal_internal(
    log_end_offset: Offset, leader_epoch: LeaderEpoch, entry_type: int, body: bytes
) -> bytes:
    """Return the bytes of an internal entry."""
    length = _TYPED_BODY_START - LENGTH_PREFIX_BYTES + len(body)
    crc = crc32c(body, crc32c(struct.pack(">b", entry_type)))
    head = _INTERNAL.pack(log_end_offset, length, leader_epoch, INTERNAL_MAGIC, crc, entry_type)
    return head + body


def is_internal(payload: Buffer) -> bool:
    """Tell internal entries from record batches."""
    return len(payload) > MAGIC_POSITION and payload[MAGIC_POSITION] == INTERNAL_MAGIC


def open_internal(payload: Buffer) -> Internal:
    """Verify and open an internal entry. Raises LogCorrupt."""
    view = memoryview(payload)
    try:
        end, length, epoch, magic, crc, entry_type = _INTERNAL.unpack_from(view)
    except struct.error as error:
        raise LogCorrupt(f"internal entry of {len(view)} bytes") from error
    if (
        magic != INTERNAL_MAGIC
        or length + LENGTH_PREFIX_BYTES != len(view)
        or crc32c(view[CRC_START:]) != crc
    ):
        raise LogCorrupt(f"damaged internal entry at offset {end}")
    return Internal(Offset(end), LeaderEpoch(epoch), entry_type, view[_TYPED_BODY_START:])


def batch_headers(payload: Buffer) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of every batch of an entry. Raises LogCorrupt."""
    try:
        found = list(headers(payload))
    except RemoteProtocolError as error:
        raise LogCorrupt(f"entry is not a sequence of record batches: {error}") from error
    if not found:
        raise LogCorrupt("empty entry")
    return found


class Taken(NamedTuple):
    """What a reader takes of an entry."""

    batches: list[memoryview]
    next_offset: Offset
    """The offset after the last one taken; without any, where the reader began."""
    size: int
    """Bytes of them."""
    stopped_at: Offset | None
    """The first offset of the batch that it does not take any more; None: it took all."""
    is_full: bool
    """Whether it stopped because it has enough, and would take more later."""


def take_batches(
    payload: memoryview,
    offset: Offset,
    limit: Offset,
    size_max: int,
    count_max: int,
    *,
    at_least_one: bool,
) -> Taken:
    """Take whole batches of an entry that end after `offset`, up to `limit`.

    At most `size_max` bytes and `count_max` batches, except that `at_least_one` is taken whatever
    its size. Looks at no more of each header than that needs: every consumer that lags behind
    passes here with every batch. Raises LogCorrupt.
    """
    batches: list[memoryview] = []
    size = at = 0
    reached, end = offset, len(payload)
    unpack_from = _BATCH_EXTENT.unpack_from
    while at < end or not end:
        try:
            base_offset, length, magic, last_delta = unpack_from(payload, at)
        except struct.error:
            magic = length = 0
        length += LENGTH_PREFIX_BYTES
        if magic != MAGIC or length < HEADER_BYTES or at + length > end:
            batch_headers(payload)  # which says what is wrong
            raise LogCorrupt(f"entry is not a sequence of record batches: at {at}")
        next_offset = base_offset + last_delta + 1
        if next_offset > offset:
            is_full = (size + length > size_max or len(batches) >= count_max) and bool(
                batches or not at_least_one
            )
            if is_full or next_offset > limit:
                return Taken(batches, reached, size, Offset(base_offset), is_full)
            batches.append(payload[at : at + length])
            size += length
            reached = Offset(next_offset)
        at += length
    return Taken(batches, reached, size, None, False)


def has_transactions(payload: Buffer) -> bool:
    """Tell whether a batch of the entry belongs to a transaction. Raises LogCorrupt."""
    return any(header.is_transactional for _at, header in batch_headers(payload))


def first_offset(payload: Buffer) -> Offset:
    """Return the offset at which the entry stands, whatever its kind. Raises LogCorrupt."""
    try:
        return peek_base_offset(payload)
    except RemoteProtocolError as error:
        raise LogCorrupt(str(error)) from error


def next_offset(payload: Buffer) -> Offset:
    """Return the offset after the entry, whatever its kind. Raises LogCorrupt."""
    if is_internal(payload):
        return first_offset(payload)
    _at, last = batch_headers(payload)[-1]
    return last.next_offset
