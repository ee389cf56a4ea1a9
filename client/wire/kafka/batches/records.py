"""The record batch, format 2: its header, its checksum, and the stamp a broker puts on it.

Covers the batch header's layout. A broker treats a batch as opaque bytes behind that header: it
reads the 61 bytes once, verifies the CRC over the rest, and replaces the first 16 bytes (base
offset, length, leader epoch, which the CRC does not cover) without copying what follows.

     0  base_offset           i64   written by the broker
     8  batch_length          i32   bytes after this field
    12  leader_epoch          i32   written by the broker
    16  magic                 i8    2
    17  crc                   u32   CRC-32C of everything from byte 21
    21  attributes            i16   0-2 codec, 3 broker-set timestamp, 4 transactional, 5 control
    23  last_offset_delta     i32
    27  base_timestamp        i64
    35  max_timestamp         i64
    43  producer_id           i64   -1: not idempotent
    51  producer_epoch        i16
    53  base_sequence         i32
    57  record_count          i32
    61  records               compressed as one block unless the codec is NONE

Records are in `record_builder.py`, codecs in `compression.py`. Source: Kafka's documentation of
its message format, section "Record Batch".
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from client.errors import RemoteProtocolError
from client.fast_tuple import new_tuple
from client.ids import LeaderEpoch, Offset, ProducerId

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_BYTES: Final = 61
STAMP_BYTES: Final = 16
"""The prefix that a broker replaces; everything after it is the producer's."""

LENGTH_PREFIX_BYTES: Final = 12
"""Base offset and length field: a batch has `batch_length` bytes more than that."""

CRC_START: Final = 21
NO_PRODUCER: Final = ProducerId(-1)
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

HEADER_KINDS: Final = "qiibIhiqqqhii"
"""The fields of `BatchHeader` as letters of `struct`; all are big-endian."""

_HEADER: Final = struct.Struct(f">{HEADER_KINDS}")
_STAMP: Final = struct.Struct(">qii")
_OFFSET: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
assert _HEADER.size == HEADER_BYTES
assert _STAMP.size == STAMP_BYTES


class Codec(enum.IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The 61 bytes every batch begins with."""

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def next_offset(self) -> Offset:
        """Offset after the batch's last one."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def is_control(self) -> bool:
        """Whether it carries a transaction marker instead of records."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def has_log_append_time(self) -> bool:
        """Whether `max_timestamp` is the broker's and stands for every record."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0


def parse_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """Read the header at `at`. Only its presence is checked. Raises RemoteProtocolError."""
    try:
        header: BatchHeader = new_tuple(BatchHeader, _HEADER.unpack_from(buffer, at))
    except struct.error:
        raise RemoteProtocolError(
            f"{len(buffer) - at} bytes at {at} are not a record batch"
        ) from None
    return header


def headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Walk concatenated batches: (position, header) of each. Raises RemoteProtocolError."""
    at = 0
    end = len(buffer)
    while at < end:
        header = parse_header(buffer, at)
        if header.magic != MAGIC:
            raise RemoteProtocolError(f"record batch at {at} has magic {header.magic}")
        size = header.batch_length + LENGTH_PREFIX_BYTES
        if size < HEADER_BYTES or at + size > end:
            raise RemoteProtocolError(f"record batch at {at} claims {size} of {end - at} bytes")
        yield at, header
        at += size


def peek_base_offset(buffer: Buffer) -> Offset:
    """Read the first eight bytes. Raises RemoteProtocolError."""
    try:
        return Offset(_OFFSET.unpack_from(buffer)[0])
    except struct.error:
        raise RemoteProtocolError("too short for a record batch") from None


def crc_of(batch: memoryview) -> int:
    """Compute the CRC-32C that the header's `crc` must equal."""
    return crc32c(batch[CRC_START:])


def stamp(base_offset: Offset, batch_length: int, leader_epoch: LeaderEpoch) -> bytes:
    """Return the 16 bytes that replace the batch's first 16; its CRC stays valid."""
    return _STAMP.pack(base_offset, batch_length, leader_epoch)


def stamp_log_append_time(
    batch: memoryview, header: BatchHeader, base_offset: Offset, epoch: LeaderEpoch, now_ms: int
) -> bytes:
    """Return the 61 bytes that replace the header when the broker sets the timestamp.

    The attribute bit and `max_timestamp` are under the CRC, so it is computed anew.
    """
    head = bytearray(
        _HEADER.pack(
            *header._replace(
                base_offset=base_offset,
                leader_epoch=epoch,
                attributes=header.attributes | LOG_APPEND_TIME_BIT,
                max_timestamp=now_ms,
            )
        )
    )
    crc = crc32c(batch[HEADER_BYTES:], crc32c(memoryview(head)[CRC_START:]))
    _CRC.pack_into(head, CRC_START - 4, crc)
    return bytes(head)


def pack_batch(header: BatchHeader, records: Buffer) -> bytes:
    """Join a header and its (compressed) records; length and CRC are filled in."""
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records)
    head = bytearray(_HEADER.pack(*header._replace(batch_length=length, magic=MAGIC, crc=0)))
    crc = crc32c(records, crc32c(memoryview(head)[CRC_START:]))
    _CRC.pack_into(head, CRC_START - 4, crc)
    return bytes(head) + bytes(records)
