"""Takes records out of a batch without touching the others: what compaction does to a batch.

Covers a batch that loses records. Offsets never change: the batch keeps its base offset, its last
offset delta, codec, producer and sequence, and those records that stay keep their bytes. Only a
batch that gets a delete horizon has its timestamps written anew, because the horizon stands where
the base timestamp did: each record's own timestamp stays the same. Source: KIP-534.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from client.errors import RemoteProtocolError
from client.wire.kafka.batches.compression import compress, decompress
from client.wire.kafka.batches.record_builder import (
    DECOMPRESSED_BYTES_MAX,
    codec_of,
    get_varint,
    put_varint,
)
from client.wire.kafka.batches.records import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    pack_batch,
)


class RecordSpan(NamedTuple):
    """A record in an opened batch: where it lies, and what decides whether it stays."""

    begin: int
    """Where its length stands."""
    after_timestamp: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def open_records(batch: Buffer, header: BatchHeader) -> memoryview:
    """Return the inflated records of a batch. Raises RemoteProtocolError."""
    data = memoryview(batch)[HEADER_BYTES : header.size]
    return memoryview(decompress(codec_of(header), data, DECOMPRESSED_BYTES_MAX))


def record_spans(body: memoryview, count: int) -> Iterator[RecordSpan]:
    """Walk `count` opened records. Raises RemoteProtocolError."""
    at = 0
    try:
        for _ in range(count):
            begin = at
            length, at = get_varint(body, at)
            end = at + length
            if length < 0 or end > len(body):
                raise RemoteProtocolError(f"record of {length} bytes, {len(body) - at} are left")
            timestamp_delta, after_timestamp = get_varint(body, at + 1)
            offset_delta, at = get_varint(body, after_timestamp)
            key_length, at = get_varint(body, at)
            key = None
            if key_length >= 0:
                key = bytes(body[at : at + key_length])
                at += key_length
            value_length, at = get_varint(body, at)
            if at + max(0, value_length) > end:
                raise RemoteProtocolError(f"value of {value_length} bytes, {end - at} are left")
            yield RecordSpan(
                begin, after_timestamp, end, timestamp_delta, offset_delta, key, value_length >= 0
            )
            at = end
    except IndexError:
        raise RemoteProtocolError("damaged record") from None


def rebuilt(
    header: BatchHeader, body: memoryview, kept: Sequence[RecordSpan], horizon_ms: int | None
) -> bytes:
    """Return the batch with nothing but the `kept` records, of which there is at least one.

    `horizon_ms`: the delete horizon that it gets; None: it keeps what it has.
    """
    assert kept
    attributes, base_timestamp = header.attributes, header.base_timestamp
    parts: list[Buffer] = []
    if horizon_ms is None:
        parts += [body[span.begin : span.end] for span in kept]
    else:
        shift = base_timestamp - horizon_ms
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon_ms
        parts += [_retimed(body, span, span.timestamp_delta + shift) for span in kept]
    newest = header.max_timestamp
    if not header.has_log_append_time:
        newest = header.base_timestamp + max(span.timestamp_delta for span in kept)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=newest,
        record_count=len(kept),
    )
    return pack_batch(changed, compress(codec_of(header), b"".join(parts)))


def _retimed(body: memoryview, span: RecordSpan, timestamp_delta: int) -> bytearray:
    inner = bytearray(1)  # a record's attributes, always 0
    put_varint(inner, timestamp_delta)
    inner += body[span.after_timestamp : span.end]
    out = bytearray()
    put_varint(out, len(inner))
    return out + inner
