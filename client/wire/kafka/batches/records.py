"""The record batch, format 2: header, checksum, codecs and records, and what a broker does to it.

Covers the layout. A broker stores the bytes behind the header as they came: it reads the 61 bytes
once, verifies the CRC over the rest, has the records read (`read_records`), and replaces the first
16 bytes (base offset, length, leader epoch, which the CRC does not cover) without copying what
follows.

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

A record: length, attributes i8 (0), timestamp delta, offset delta, key length (-1: null), key,
value length, value, header count, and per header a key and a value with their lengths. All
numbers but the attributes are zigzag varints. Source: Kafka's documentation of its message format,
sections "Record Batch" and "Record".

Codecs. This file is the only importer of cramjam. Decompression writes into a buffer whose size
never exceeds `size_max`, so a few kilobytes from a hostile producer cannot fill the memory. A
server bounds it by `cautious_bytes_max`, because it opens many batches of a request on the loop
that serves everybody. Snappy has two forms on the wire: raw blocks (librdkafka, most clients) and
xerial's framing (Java). An LZ4 frame is made of blocks that do not depend on each other: Java's
consumer reads no other ones (KIP-57), while cramjam makes such as do.

Building and decoding records is for coordinators and clients; brokers do neither for plain produce
and fetch, and search with `record_scan.py`.

Reading. What a batch's header says of its records is the producer's word. A broker that believes it
stores batches at which every consumer stops, and searches by times that no record has. So each
record is passed over: lengths, numbers, keys, headers, and whether the batch ends where its last
record does. Nothing is made of them; what is left is one `RecordFacts` for each batch.

`read_records` is compiled (`_record_reader.c`) where a compiler was at hand at installation; the
generator `read_slowly` says the same of every input, some hundred times as slowly, and is what it
is compared with. It pauses, because a batch of some megabytes takes it seconds.

Rules, Kafka's unless said otherwise: a number has at most 32 bits, a timestamp's delta 64 (Kafka
drops further bits); a length below zero is null where null may be, but only -1 is (Kafka: any); the
name of a header is there, in whatever encoding; a record's attributes say nothing. Offset deltas
that do not count up from 0 are told and no fault.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import cramjam
from crc32c import crc32c

from client.errors import InflatesTooMuch, RemoteProtocolError
from client.fast_tuple import new_tuple
from client.ids import LeaderEpoch, Offset, ProducerId
from client.wire.steps import STEP_RECORDS, Steps, finish

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

CODEC_AT: Final = 22
"""Where the byte of the attributes is that has the codec."""
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


class Compression(NamedTuple):
    """How records are to be compressed."""

    codec: Codec
    level: int | None = None
    """Of the codec; None: its default."""


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

    The attribute bit and `max_timestamp` are under the CRC.
    """
    changed = header._replace(
        attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms
    )
    return stamp_changed(batch, changed, base_offset, epoch)


def stamp_changed(
    batch: memoryview, header: BatchHeader, base_offset: Offset, epoch: LeaderEpoch
) -> bytes:
    """Return the 61 bytes that replace the header of `batch` by another one, with its CRC."""
    head = bytearray(_HEADER.pack(*header._replace(base_offset=base_offset, leader_epoch=epoch)))
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


_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_BLOCK: Final = struct.Struct(">i")
_FIRST_GUESS_BYTES: Final = 64 * 1024
_GROWTH: Final = 8
_NO_ROOM: Final = "failed to write whole buffer"
"""What cramjam says when the output does not fit; anything else is damage, and no buffer helps."""
_SNAPPY_RATIO_MAX: Final = 22
"""Three bytes of a block stand for 64 at most: a block that claims more lies."""

_CAUTIOUS_BYTES: Final = 1 << 20, 16 << 20
_CAUTIOUS_RATIO: Final = 100


def cautious_bytes_max(compressed_size: int) -> int:
    """Return what a server inflates a batch to at most: a hundredfold, 16 MiB, never < 1 MiB.

    A thousand tiny batches in one request must not cost what a thousand large ones would.
    """
    least, most = _CAUTIOUS_BYTES
    return min(most, max(least, _CAUTIOUS_RATIO * compressed_size))


_LZ4_HEAD: Final = bytes.fromhex("04224d18604082")
"""A frame of independent blocks of up to 64 KiB, without checksums: the batch has one."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_SIZE: Final = struct.Struct("<I")
_LZ4_STORED: Final = 0x8000_0000
"""In the size of a block: its bytes are not compressed."""
_LZ4_END: Final = bytes(4)


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of a batch; NONE returns them as they are.

    `level` is Kafka's; None: the default of the codec. Lets go of the interpreter meanwhile.
    """
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec is Codec.LZ4:
        return _compress_lz4(memoryview(data), level)
    return bytes(cramjam.zstd.compress(data, level))


def _compress_lz4(data: memoryview, level: int | None) -> bytes:
    """Make a frame of each block, and one frame of their blocks."""
    parts: list[Buffer] = [_LZ4_HEAD]
    for at in range(0, len(data), _LZ4_BLOCK_BYTES):
        alone = memoryview(cramjam.lz4.compress(data[at : at + _LZ4_BLOCK_BYTES], level))
        size_at = len(_LZ4_HEAD)
        begin = size_at + _LZ4_SIZE.size
        (size,) = _LZ4_SIZE.unpack_from(alone, size_at)
        parts += (alone[size_at:begin], alone[begin : begin + (size & ~_LZ4_STORED)])
    return b"".join((*parts, _LZ4_END))


def decompress(codec: Codec, data: Buffer, size_max: int) -> Buffer:
    """Undo `compress`. Raises RemoteProtocolError for damaged data, and InflatesTooMuch, which is
    one of these, beyond `size_max` bytes."""
    if codec is Codec.NONE:
        return data
    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(data, size_max)
        return _decompress_stream(codec, data, size_max)
    except cramjam.DecompressionError as error:
        if _NO_ROOM in str(error):
            raise InflatesTooMuch(
                f"more than {size_max} bytes of {codec.name} records in {len(data)}"
            ) from error
        raise RemoteProtocolError(f"damaged {codec.name} records: {error}") from error


def _decompress_stream(codec: Codec, data: Buffer, size_max: int) -> Buffer:
    """Try growing output buffers: the formats do not always say how large the content is."""
    module = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec]
    size = min(size_max, max(_FIRST_GUESS_BYTES, _GROWTH * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = module.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if size >= size_max or _NO_ROOM not in str(error):
                raise
            size = min(size_max, size * _GROWTH)
            continue
        return memoryview(output)[:written]


def _decompress_snappy(data: Buffer, size_max: int) -> Buffer:
    if len(data) < _XERIAL_HEADER.size or bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, size_max)
    view = memoryview(data)
    output = bytearray()
    at = _XERIAL_HEADER.size
    while at < len(view):
        try:
            (size,) = _XERIAL_BLOCK.unpack_from(view, at)
        except struct.error:
            raise RemoteProtocolError("truncated snappy frame") from None
        at += _XERIAL_BLOCK.size
        if size <= 0 or at + size > len(view):
            raise RemoteProtocolError(f"snappy block of {size} bytes, {len(view) - at} are left")
        output += _decompress_snappy_block(view[at : at + size], size_max - len(output))
        at += size
    return output


def _decompress_snappy_block(data: Buffer, size_max: int) -> Buffer:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > _SNAPPY_RATIO_MAX * len(data):
        raise RemoteProtocolError(f"snappy block that claims {size} bytes in {len(data)}")
    if size > size_max:
        raise InflatesTooMuch(
            f"snappy block of {size} bytes in {len(data)}; at most {size_max} are allowed"
        )
    return bytes(cramjam.snappy.decompress_raw(data))


FIRST_OFFSET: Final = Offset(0)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, both deltas, both field lengths and the header count take a byte each."""
_VARINT_BITS_MAX: Final = 63


class Record(NamedTuple):
    """One record. `offset` is assigned by the log; a builder ignores it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: Offset = FIRST_OFFSET


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: Offset = FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    producer_id: ProducerId = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    codec: Codec = Codec.NONE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build one batch with consecutive offsets. `records` is not empty."""
    assert records
    base_timestamp = records[0].timestamp_ms
    body = bytearray()
    for delta, record in enumerate(records):
        encoded = _encode_record(record, delta, record.timestamp_ms - base_timestamp)
        put_varint(body, len(encoded))
        body += encoded
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0),
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return pack_batch(header, compress(codec, body))


def records(batch: Buffer, *, size_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Walk the records of one batch, decompressing them if need be.

    Raises RemoteProtocolError for damaged records and for more than `size_max` bytes of them.
    """
    header = parse_header(batch)
    codec = codec_of(header)
    body = memoryview(decompress(codec, memoryview(batch)[HEADER_BYTES : header.size], size_max))
    at = 0
    for _ in range(header.record_count):
        try:
            length, at = get_varint(body, at)
            if length < 0 or at + length > len(body):
                raise RemoteProtocolError(f"record of {length} bytes, {len(body) - at} are left")
            yield decode_record(body[at : at + length], header)
        except IndexError:
            raise RemoteProtocolError("damaged record") from None
        at += length


def codec_of(header: BatchHeader) -> Codec:
    """Return how a batch is compressed. Raises RemoteProtocolError."""
    try:
        return Codec(header.attributes & CODEC_MASK)
    except ValueError:
        raise RemoteProtocolError(f"unknown codec in attributes {header.attributes:#x}") from None


def _encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytearray:
    out = bytearray(1)
    put_varint(out, timestamp_delta)
    put_varint(out, offset_delta)
    _put_bytes(out, record.key)
    _put_bytes(out, record.value)
    put_varint(out, len(record.headers))
    for key, value in record.headers:
        _put_bytes(out, key.encode())
        _put_bytes(out, value)
    return out


def decode_record(body: memoryview, header: BatchHeader) -> Record:
    """Decode the record that `body` holds, without its length. Raises RemoteProtocolError and
    IndexError for damage."""
    timestamp_delta, at = get_varint(body, 1)
    offset_delta, at = get_varint(body, at)
    key, at = _get_bytes(body, at)
    value, at = _get_bytes(body, at)
    header_count, at = get_varint(body, at)
    if not 0 <= header_count <= len(body) - at:
        raise RemoteProtocolError(f"{header_count} headers in {len(body) - at} bytes")
    pairs: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, at = _get_bytes(body, at)
        content, at = _get_bytes(body, at)
        pairs.append(((name or b"").decode(errors="replace"), content))  # as Java shows it
    if header.has_log_append_time:
        timestamp_ms = header.max_timestamp
    else:
        timestamp_ms = header.base_timestamp + timestamp_delta
    offset = Offset(header.base_offset + offset_delta)
    return Record(key, value, timestamp_ms, tuple(pairs), offset)


def put_varint(out: bytearray, value: int) -> None:
    """Append a number of 64 bits, zigzag coded."""
    number = (value << 1) ^ (value >> 63)
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)


def get_varint(data: Buffer, at: int) -> tuple[int, int]:
    """Return (value, position after it). Raises IndexError at the end of the data."""
    number: int = data[at]
    at += 1
    if number < 0x80:
        return (number >> 1) ^ -(number & 1), at
    number &= 0x7F
    shift = 7
    while True:
        byte: int = data[at]
        at += 1
        if byte < 0x80:
            number |= byte << shift
            return (number >> 1) ^ -(number & 1), at
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise RemoteProtocolError("varint of more than ten bytes")


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        put_varint(out, -1)
        return
    put_varint(out, len(value))
    out += value


def _get_bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = get_varint(data, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > len(data):
        raise RemoteProtocolError(f"field of {length} bytes, {len(data) - at} are left")
    return bytes(data[at : at + length]), at + length


compiled: Callable[..., tuple[int, int, int, bool, tuple[int, ...], tuple[int, ...]]] | None
"""The compiled form of `read_records`, which takes its arguments by position."""
try:
    from client.wire.kafka.batches._record_reader import read_records as compiled
except ImportError:  # no compiler when it was installed, or a checkout where nothing was built
    compiled = None

IS_COMPILED: Final = compiled is not None
"""Whether `read_records` costs tens of nanoseconds for a record, rather than microseconds."""

BLAMED_MAX: Final = 100
"""Records that are named for a missing key, or for their time; a batch may have millions."""

TIME_MIN: Final = -(1 << 63)
TIME_MAX: Final = (1 << 63) - 1
_SHORT_BITS: Final = 32
_LONG_BITS: Final = 64


class Fault(enum.IntEnum):
    """What is wrong with a record; numbers as in `_record_reader.c`."""

    NONE = 0
    CUT_OFF = 1
    LONG_NUMBER = 2
    BAD_LENGTH = 3
    UNEVEN = 4
    BAD_HEADERS = 5
    NAMELESS = 6
    BAD_TIME = 7
    TRAILING = 8


FAULT_TEXTS: Final = {
    Fault.CUT_OFF: "ends after the batch does",
    Fault.LONG_NUMBER: "has a number of too many bits",
    Fault.BAD_LENGTH: "has a negative length",
    Fault.UNEVEN: "has fields that do not end where it does",
    Fault.BAD_HEADERS: "has no room for its headers",
    Fault.NAMELESS: "has a header without a name",
    Fault.BAD_TIME: "has a timestamp of more than 64 bits",
    Fault.TRAILING: "does not exist, yet bytes are left",
}
"""What to say of a record, after its index."""


class RecordFacts(NamedTuple):
    """What the records of a batch come to. With a fault only `fault` and `record` say anything."""

    fault: int
    """A `Fault`."""
    record: int
    """Index of the record with the fault; otherwise how many there are."""
    newest_ms: int
    """The largest timestamp; -1: no record has one."""
    is_numbered: bool
    """Whether offset deltas are 0, 1, 2 and so on."""
    keyless: tuple[int, ...]
    """The first records without a key, where keys are required."""
    mistimed: tuple[int, ...]
    """The first records whose timestamp is out of bounds."""


def read_records(
    data: Buffer,
    at: int,
    count: int,
    base_timestamp: int,
    oldest_ms: int,
    latest_ms: int,
    keys_required: bool,
) -> RecordFacts:
    """Read `count` records that begin at `at` and must end with `data`.

    Timestamps are in bounds from `oldest_ms` to `latest_ms`, both included; -1 always is. Raises
    nothing: a fault is part of what it returns.
    """
    if compiled is None:
        return finish(
            read_slowly(data, at, count, base_timestamp, oldest_ms, latest_ms, keys_required)
        )
    facts: RecordFacts = new_tuple(
        RecordFacts,
        compiled(data, at, count, base_timestamp, oldest_ms, latest_ms, keys_required),
    )
    return facts


class _Faulty(Exception):
    """A record has a fault."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


class _Span:
    """Bytes that are read from the front."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    @property
    def left(self) -> int:
        return self.end - self.at

    def byte(self, beyond: Fault) -> int:
        if self.at >= self.end:
            raise _Faulty(beyond)
        self.at += 1
        value: int = self.data[self.at - 1]
        return value

    def number(self, bits: int, beyond: Fault) -> int:
        """Take a zigzag number; `beyond` is the fault of a span that ends in it."""
        byte = self.byte(beyond)
        value, shift = byte & 0x7F, 7
        while byte & 0x80:
            byte = self.byte(beyond)
            if shift + 7 > bits and byte >> (bits - shift):
                raise _Faulty(Fault.LONG_NUMBER)
            value |= (byte & 0x7F) << shift
            shift += 7
        return (value >> 1) ^ -(value & 1)

    def field(self) -> int:
        """Pass over a field; return its length, -1 for null."""
        length = self.number(_SHORT_BITS, Fault.UNEVEN)
        if length < -1:
            raise _Faulty(Fault.BAD_LENGTH)
        if length > self.left:
            raise _Faulty(Fault.UNEVEN)
        self.at += max(0, length)
        return length


def read_slowly(
    data: Buffer,
    at: int,
    count: int,
    base_timestamp: int,
    oldest_ms: int,
    latest_ms: int,
    keys_required: bool,
) -> Steps[RecordFacts]:
    """Do as `read_records`, in Python and in steps."""
    whole = _Span(memoryview(data), at, len(data))
    newest_ms, is_numbered, work = NO_TIMESTAMP, True, 0
    keyless: list[int] = []
    mistimed: list[int] = []
    index = 0
    try:
        while index < count:
            length = whole.number(_SHORT_BITS, Fault.CUT_OFF)
            if length < 0:
                raise _Faulty(Fault.BAD_LENGTH)
            if length > whole.left:
                raise _Faulty(Fault.CUT_OFF)
            record = _Span(whole.data, whole.at, whole.at + length)
            whole.at += length
            record.byte(Fault.UNEVEN)  # its attributes
            delta = record.number(_LONG_BITS, Fault.UNEVEN)
            is_numbered &= record.number(_SHORT_BITS, Fault.UNEVEN) == index
            has_key = record.field() >= 0
            record.field()
            work += 1 + (yield from _headers(record))
            if record.left:
                raise _Faulty(Fault.UNEVEN)
            time_ms = base_timestamp + delta
            if not TIME_MIN <= time_ms <= TIME_MAX:
                raise _Faulty(Fault.BAD_TIME)
            newest_ms = max(newest_ms, time_ms)
            if keys_required and not has_key and len(keyless) < BLAMED_MAX:
                keyless.append(index)
            is_timely = oldest_ms <= time_ms <= latest_ms or time_ms == NO_TIMESTAMP
            if not is_timely and len(mistimed) < BLAMED_MAX:
                mistimed.append(index)
            index += 1
            if work >= STEP_RECORDS:
                work = 0
                yield
        if whole.left:
            raise _Faulty(Fault.TRAILING)
    except _Faulty as faulty:
        return RecordFacts(int(faulty.fault), index, NO_TIMESTAMP, True, (), ())
    return RecordFacts(0, index, newest_ms, is_numbered, tuple(keyless), tuple(mistimed))


def _headers(record: _Span) -> Steps[int]:
    """Pass over a record's headers; return how many came since the last pause."""
    count = record.number(_SHORT_BITS, Fault.UNEVEN)
    if not 0 <= count <= record.left:
        raise _Faulty(Fault.BAD_HEADERS)
    work = 0
    for _ in range(count):
        if record.field() < 0:
            raise _Faulty(Fault.NAMELESS)
        record.field()
        work += 1
        if work >= STEP_RECORDS:
            work = 0
            yield
    return work


def fault_text(facts: RecordFacts) -> str:
    """Say in words what is wrong with the records."""
    return f"record {facts.record} of the batch {FAULT_TEXTS[Fault(facts.fault)]}"
