"""Takes records out of a batch without touching the others: what compaction does to a batch.

Covers a batch that loses records. Offsets never change: the batch keeps its base offset, its last
offset delta, codec, producer and sequence, and those records that stay keep their bytes. Only a
batch that gets a delete horizon has its timestamps written anew, because the horizon stands where
the base timestamp did: each record's own timestamp stays the same. Source: KIP-534.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from client.errors import RemoteProtocolError
from client.wire.kafka.batches.records import (
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    codec_of,
    compress,
    decompress,
    get_varint,
    pack_batch,
    put_varint,
)

_ONE_BYTE_MAX: Final = 0x7F


Span = tuple[int, int, int, int, int, bytes | None, bool]
"""A record in an opened batch: where it lies, and what decides whether it stays.

begin (where its length stands), after_timestamp, end, timestamp_delta, offset_delta, key, has_value
"""


def open_records(batch: Buffer, header: BatchHeader) -> memoryview:
    """Return the inflated records of a batch. Raises RemoteProtocolError."""
    data = memoryview(batch)[HEADER_BYTES : header.size]
    return memoryview(decompress(codec_of(header), data, DECOMPRESSED_BYTES_MAX))


def record_spans(body: memoryview, count: int) -> Iterator[Span]:
    """Walk `count` opened records. Raises RemoteProtocolError.

    Numbers of one byte, and sizes of two, are read here, longer ones by `get_varint`: a record has
    four, and a call costs as much as all else of it. For the same reason the bytes are looked at in
    one object of their own, which a `memoryview` is slower to be indexed than, and what is yielded
    has no names. Behind its key a record is not looked into: whether it has a value is enough.
    """
    data, size, at = body.tobytes(), len(body), 0
    try:
        for _ in range(count):
            begin = at
            length = data[at]
            at += 1
            if length > _ONE_BYTE_MAX:
                more = data[at]
                if more > _ONE_BYTE_MAX:
                    length, at = get_varint(data, begin)
                else:
                    at += 1
                    length = ((length & _ONE_BYTE_MAX | more << 7) >> 1) ^ -(length & 1)
            else:
                length = (length >> 1) ^ -(length & 1)
            end = at + length
            if length < 0 or end > size:
                raise RemoteProtocolError(f"record of {length} bytes, {size - at} are left")
            timestamp_delta = data[at + 1]
            after_timestamp = at + 2
            if timestamp_delta > _ONE_BYTE_MAX:
                timestamp_delta, after_timestamp = get_varint(data, at + 1)
            else:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
            offset_delta = data[after_timestamp]
            at = after_timestamp + 1
            if offset_delta > _ONE_BYTE_MAX:
                offset_delta, at = get_varint(data, after_timestamp)
            else:
                offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
            key_length = data[at]
            at += 1
            if key_length > _ONE_BYTE_MAX:
                key_length, at = get_varint(data, at - 1)
            else:
                key_length = (key_length >> 1) ^ -(key_length & 1)
            key = None
            if key_length >= 0:
                key = data[at : at + key_length]
                at += key_length
            has_value = data[at] & 1 == 0  # the sign of its length
            if at >= end:
                raise RemoteProtocolError(f"key of {key_length} bytes is longer than its record")
            yield begin, after_timestamp, end, timestamp_delta, offset_delta, key, has_value
            at = end
    except IndexError:
        raise RemoteProtocolError("damaged record") from None


def rebuilt(
    header: BatchHeader, body: memoryview, kept: Sequence[Span], horizon_ms: int | None
) -> bytes:
    """Return the batch with nothing but the `kept` records, of which there is at least one.

    `horizon_ms`: the delete horizon that it gets; None: it keeps what it has.
    """
    assert kept
    attributes, base_timestamp = header.attributes, header.base_timestamp
    parts: list[Buffer] = []
    if horizon_ms is None:
        parts += [body[begin:end] for begin, _after, end, *_rest in kept]
    else:
        shift = base_timestamp - horizon_ms
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon_ms
        parts += [_retimed(body, span, shift) for span in kept]
    newest = header.max_timestamp
    if not header.has_log_append_time:
        newest = header.base_timestamp + max(delta for _b, _a, _e, delta, *_rest in kept)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=newest,
        record_count=len(kept),
    )
    return pack_batch(changed, compress(codec_of(header), b"".join(parts)))


def _retimed(body: memoryview, span: Span, shift: int) -> bytearray:
    _begin, after_timestamp, end, timestamp_delta, *_rest = span
    inner = bytearray(1)  # a record's attributes, always 0
    put_varint(inner, timestamp_delta + shift)
    inner += body[after_timestamp:end]
    out = bytearray()
    put_varint(out, len(inner))
    return out + inner
