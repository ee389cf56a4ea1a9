"""Single records: build a batch out of them, and take a batch apart.

Covers the record layout inside a batch. Brokers never come here for plain produce and fetch;
coordinators write their state with `build_batch`, and what they search is in `record_scan.py`.

A record: length, attributes i8 (0), timestamp delta, offset delta, key length (-1: null), key,
value length, value, header count, and per header a key and a value with their lengths. All
numbers but the attributes are zigzag varints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from client.errors import RemoteProtocolError
from client.ids import LeaderEpoch, Offset, ProducerId
from client.wire.kafka.batches.compression import compress, decompress
from client.wire.kafka.batches.records import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
    pack_batch,
    parse_header,
)

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
        except (IndexError, UnicodeDecodeError):
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
    """Decode the record that `body` holds, without its length. Raises RemoteProtocolError,
    IndexError and UnicodeDecodeError for damage."""
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
        pairs.append(((name or b"").decode(), content))
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
