"""Encode rows as record batches with NumPy and Arrow, without touching single rows in Python.

All numbers of a record that stand side by side (length, attributes, both deltas, key length) are
written for all rows at once as varints; Arrow then joins these pieces with keys and values element
by element, and the bytes of the joined array are the records. `decode/decode.py` goes the other
way.

Rows are cut into batches before, by what they will about weigh: deltas and the record count are
the batch's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from client.ids import LeaderEpoch, Offset, ProducerId
from client.wire.kafka.batches.records import (
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    compress,
    pack_batch,
)

Numbers = npt.NDArray[np.int64]

RECORD_OVERHEAD: Final = 24
"""About what the numbers of a record weigh."""

_NO_EPOCH: Final = LeaderEpoch(-1)
_VARINT_BYTES_MAX: Final = 10


class Unsent(NamedTuple):
    """A batch that has everything but its producer."""

    header: BatchHeader
    records: bytes
    """Compressed."""

    @property
    def record_count(self) -> int:
        """Records in it."""
        return self.header.record_count

    def sealed(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transactional: bool = False,
    ) -> bytes:
        """Return the batch's bytes, as that producer sends it. Without producer: -1, -1, -1."""
        header = self.header._replace(
            attributes=self.header.attributes | (TRANSACTIONAL_BIT if transactional else 0),
            producer_id=ProducerId(producer_id),
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        return pack_batch(header, self.records)


def encode(rows: pa.RecordBatch, codec: Codec, batch_bytes: int) -> list[Unsent]:
    """Return the batches that hold the rows, in their order.

    `rows` has columns key and value (binary), headers (list<struct<key, value>>) and timestamp
    (int64, milliseconds), each of which may hold nulls or be of type null. A batch has at most
    `batch_bytes` before compression, unless a single record has more.
    """
    if not rows.num_rows:
        return []
    keys, values = _binary(rows["key"]), _binary(rows["value"])
    header_counts, header_bytes = _headers(rows["headers"])
    key_sizes, value_sizes = _lengths(keys), _lengths(values)
    weights = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + RECORD_OVERHEAD
    if header_bytes is not None:
        weights += _lengths(header_bytes)
    starts = _cut(weights, batch_bytes)
    timestamps = _timestamps(rows["timestamp"])
    counts = np.diff(np.append(starts, rows.num_rows))
    bases = np.repeat(timestamps[starts], counts)
    deltas = np.arange(rows.num_rows) - np.repeat(starts, counts)
    head = [np.zeros_like(deltas), timestamps - bases, deltas, key_sizes]
    mid = varints([value_sizes])
    tail = varints([header_counts])
    sizes = (
        sum(varint_sizes(column) for column in head)
        + np.maximum(key_sizes, 0) + _lengths(mid) + np.maximum(value_sizes, 0) + _lengths(tail)
    )  # fmt: skip
    pieces = [keys, mid, values, tail]
    if header_bytes is not None:
        sizes += _lengths(header_bytes)
        pieces.append(header_bytes)
    joined = pc.binary_join_element_wise(
        varints([sizes, *head]), *pieces, b"", null_handling="replace", null_replacement=b""
    )
    return [
        _batch(joined, timestamps, int(start), int(start + count), codec)
        for start, count in zip(starts, counts, strict=True)
    ]


def varint_sizes(numbers: Numbers) -> Numbers:
    """Return how many bytes each number takes as a zigzag varint."""
    rest = _zigzag(numbers) >> np.uint64(7)
    sizes = np.ones(len(numbers), dtype=np.int64)
    while rest.any():
        sizes += rest > 0
        rest >>= np.uint64(7)
    return sizes


def varints(columns: Sequence[Numbers]) -> pa.Array:
    """Return, row by row, the numbers of all columns as zigzag varints side by side."""
    sizes = [varint_sizes(column) for column in columns]
    bounds = np.zeros(len(columns[0]) + 1, dtype=np.int32)
    np.cumsum(sum(sizes), out=bounds[1:])
    data = np.empty(bounds[-1], dtype=np.uint8)
    at = bounds[:-1].astype(np.int64)
    for column, size in zip(columns, sizes, strict=True):
        rest = _zigzag(column)
        for index in range(int(size.max())):
            rows = slice(None) if index == 0 else np.flatnonzero(size > index)
            more = (size[rows] > index + 1).astype(np.uint8) << 7
            data[at[rows] + index] = (rest[rows] & np.uint64(0x7F)).astype(np.uint8) | more
            rest >>= np.uint64(7)
        at = at + size
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _zigzag(numbers: Numbers) -> npt.NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _cut(weights: Numbers, batch_bytes: int) -> Numbers:
    """Return where batches begin, so that each is at most so heavy unless it has one row."""
    ends = np.cumsum(weights)
    starts = [0]
    while True:
        before = ends[starts[-1] - 1] if starts[-1] else 0
        following = int(np.searchsorted(ends, before + batch_bytes, side="right"))
        following = max(following, starts[-1] + 1)
        if following >= len(weights):
            return np.array(starts, dtype=np.int64)
        starts.append(following)


def _batch(joined: pa.Array, timestamps: Numbers, start: int, end: int, codec: Codec) -> Unsent:
    _validity, offsets, data = joined.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)
    first, last = joined.offset + start, joined.offset + end
    records = memoryview(data)[int(bounds[first]) : int(bounds[last])]
    header = BatchHeader(
        base_offset=Offset(0),
        batch_length=0,
        leader_epoch=_NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=int(codec),
        last_offset_delta=end - start - 1,
        base_timestamp=int(timestamps[start]),
        max_timestamp=int(timestamps[start:end].max()),
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=end - start,
    )
    return Unsent(header, compress(codec, records))


def _binary(column: pa.Array) -> pa.Array:
    """Return text as the bytes of its UTF-8; a column of type null as null bytes."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _lengths(column: pa.Array) -> Numbers:
    """Return the bytes of each element, -1 for null."""
    lengths = pc.fill_null(pc.binary_length(column), -1)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)


def _timestamps(column: pa.Array) -> Numbers:
    """Return milliseconds; rows without a timestamp are of now."""
    now_ms = time.time_ns() // 1_000_000
    if column.null_count == len(column):
        return np.full(len(column), now_ms, dtype=np.int64)
    filled = pc.fill_null(column.cast(pa.int64()), now_ms)
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def _headers(column: pa.Array) -> tuple[Numbers, pa.Array | None]:
    """Return (headers of each row, all their bytes); None for the bytes: nobody has headers."""
    count = len(column)
    if column.null_count == count:
        return np.zeros(count, dtype=np.int64), None
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    counts = counts.astype(np.int64)
    flat = column.flatten()
    keys, values = _binary(flat.field("key")), _binary(flat.field("value"))
    encoded = pc.binary_join_element_wise(
        varints([_lengths(keys)]), keys, varints([_lengths(values)]), values, b"",
        null_handling="replace", null_replacement=b"",
    )  # fmt: skip
    bounds = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(counts, out=bounds[1:])
    by_row = pa.ListArray.from_arrays(pa.array(bounds), encoded)
    return counts, pc.binary_join(by_row, b"")
