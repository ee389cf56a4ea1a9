"""Passes over the records of a batch in steps, without building any that nobody asked for.

Covers every search in a stored batch: which record is the first that is not older, which come after
an offset. How many records a batch holds is the producer's choice, and its
compressed bytes hardly limit it, so whoever serves others does this in steps. The layout of a
record is in `records.py`.

Headers are passed over and checked like everything else; each counts as a record does, because a
record may hold millions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from client.errors import RemoteProtocolError
from client.ids import Offset
from client.wire.kafka.batches.records import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    Codec,
    Record,
    cautious_bytes_max,
    codec_of,
    decode_record,
    decompress,
    get_varint,
    parse_header,
)
from client.wire.steps import STEP_RECORDS, Steps

_CAUTIOUS_RECORDS: Final = 16_384
_CAUTIOUS_PER_BYTE: Final = 16
_INFLATED_AT_ONCE: Final = 64 * 1024
"""Compressed batches above it are inflated in a step of their own."""
_BATCH_WORK: Final = 2
"""A batch whose header is read, in records."""
_OPENING_WORK: Final = 300
"""A small batch that is inflated, in records."""


class RecordHead(NamedTuple):
    """Where a record lies in the inflated body, and what stands before its key."""

    begin: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_length: int
    header_count: int


def cautious_records_max(compressed_size: int) -> int:
    """Return how many records a server looks at in this many bytes of a batch: 16 a byte, never
    fewer than 16,384. Records differ in their offsets, so honest ones take more room than that."""
    return max(_CAUTIOUS_RECORDS, _CAUTIOUS_PER_BYTE * compressed_size)


class OpenedRecords:
    """What one request has had opened so far, and whether others must have their turn."""

    __slots__ = ("_left", "_work")

    def __init__(self, records_max: int) -> None:
        self._left = records_max
        self._work = 0
        """Since the turn began, in records."""

    def take(self, count: int) -> bool:
        """Say whether this many more records may be opened; if so, they count."""
        if count > self._left:
            return False
        self._left -= max(0, count)
        self._work += _OPENING_WORK + count % STEP_RECORDS  # the rest takes turns of its own
        return True

    def is_turn_over(self) -> bool:
        """Say, once for each batch, whether enough was done in this turn of the loop."""
        self._work += _BATCH_WORK
        if self._work < STEP_RECORDS:
            return False
        self._work = 0
        return True


def first_larger(body: memoryview, count: int, size_max: int) -> Steps[tuple[int, int] | None]:
    """Return (index, size) of the first of the inflated records that is larger than `size_max`
    bytes, without the varint of its length. `body` was checked by `records.read_records`.
    """
    at = 0
    for index in range(count):
        size, at = get_varint(body, at)
        if size > size_max:
            return index, size
        at += size
        if index % STEP_RECORDS == STEP_RECORDS - 1:
            yield
    return None


def first_not_older(
    batch: Buffer, timestamp_ms: int, start: Offset
) -> Steps[tuple[Offset, int] | None]:
    """Return (offset, timestamp) of the first record from `start` on that is not older.

    Raises RemoteProtocolError for damaged records, and for more of them, or of their bytes, than a
    batch of that size may hold.
    """
    header = _checked(batch)
    body = yield from _inflate(batch, header)
    delta = timestamp_ms - header.base_timestamp
    offset_delta = start - header.base_offset
    for head in _heads(body, header.record_count):
        if head is None:
            yield
        elif head.timestamp_delta >= delta and head.offset_delta >= offset_delta:
            return (
                Offset(header.base_offset + head.offset_delta),
                header.base_timestamp + head.timestamp_delta,
            )
    return None


def newest_from(batch: Buffer, start: Offset) -> Steps[int]:
    """Return the largest timestamp of the records from `start` on; -1: there are none.

    Raises as `first_not_older`.
    """
    header = _checked(batch)
    body = yield from _inflate(batch, header)
    newest_ms = -1
    for head in _heads(body, header.record_count):
        if head is None:
            yield
        elif header.base_offset + head.offset_delta >= start:
            newest_ms = max(newest_ms, header.base_timestamp + head.timestamp_delta)
    return newest_ms


def records_from(
    batch: Buffer, start: Offset, count_max: int, headers_max: int
) -> Steps[list[Record]]:
    """Return up to `count_max` records from offset `start` on.

    Raises as `first_not_older`, and for a record of more than `headers_max` headers.
    """
    header = _checked(batch)
    body = yield from _inflate(batch, header)
    found: list[Record] = []
    for head in _heads(body, header.record_count):
        if len(found) == count_max:
            break
        if head is None:
            yield
        elif header.base_offset + head.offset_delta >= start:
            if head.header_count > headers_max:
                raise RemoteProtocolError(
                    f"record with {head.header_count} headers; at most {headers_max} are shown"
                )
            found.append(decode_record(body[head.begin : head.end], header))
    return found


def _checked(batch: Buffer) -> BatchHeader:
    header = parse_header(batch)
    count, size = header.record_count, len(batch)
    if count > cautious_records_max(size):
        raise RemoteProtocolError(f"{count} records in {size} bytes are not looked at")
    return header


def _inflate(batch: Buffer, header: BatchHeader) -> Steps[memoryview]:
    codec = codec_of(header)
    if codec is not Codec.NONE and header.size > _INFLATED_AT_ONCE:
        yield
    data = memoryview(batch)[HEADER_BYTES : header.size]
    body = memoryview(decompress(codec, data, cautious_bytes_max(len(batch))))
    if codec is not Codec.NONE and len(body) > _INFLATED_AT_ONCE:
        yield
    return body


def _heads(body: memoryview, count: int) -> Iterator[RecordHead | None]:
    """Walk the records; None: a step is over. Raises RemoteProtocolError."""
    at = 0
    work = 0
    for _ in range(count):
        try:
            length, begin = get_varint(body, at)
            end = begin + length
            if length < 0 or end > len(body):
                raise RemoteProtocolError(f"record of {length} bytes, {len(body) - begin} are left")
            timestamp_delta, at = get_varint(body, begin + 1)
            offset_delta, at = get_varint(body, at)
            key_length, at = _field(body, at, end)
            _, at = _field(body, at, end)
            header_count, at = get_varint(body, at)
            if not 0 <= header_count <= end - at:
                raise RemoteProtocolError(f"{header_count} headers in {end - at} bytes")
            for _ in range(header_count):
                _, at = _field(body, at, end)
                _, at = _field(body, at, end)
                work += 1
                if work >= STEP_RECORDS:
                    work = 0
                    yield None
        except IndexError:
            raise RemoteProtocolError("damaged record") from None
        yield RecordHead(begin, end, timestamp_delta, offset_delta, key_length, header_count)
        at = end
        work += 1
        if work >= STEP_RECORDS:
            work = 0
            yield None


def _field(body: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return (length, position after the field); -1: null."""
    length, at = get_varint(body, at)
    if length == -1:
        return length, at
    if length < 0 or at + length > end:
        raise RemoteProtocolError(f"field of {length} bytes, {end - at} are left")
    return length, at + length
