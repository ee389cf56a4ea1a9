"""Read the fields of many records at once: varints, byte strings and headers as arrays.

A position is never trusted: every length is checked against the end of its record before anything
is read behind it, and the buffer ends with `PADDING`, so that a varint that begins inside can be
read without a check of its own. Errors name the index of the first record that is wrong.

Byte strings are not looked at. Where they lie in the buffer becomes an Arrow array whose
elements are, in turn, a wanted string and the gap after it; `take` of every other one copies
them at the speed of memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from client.spark.decode.record_starts import Bytes, Positions, pairs
from client.wire.kafka.batches.records import Buffer

Flags = npt.NDArray[np.bool_]

PADDING: Final = bytes(64)
"""Behind the last record: two varints, a byte and a length may be read beyond its end."""

_CONTINUED: Final = 0x80
_VARINT_BITS_MAX: Final = 63
_NULL: Final = -1


class DamagedRecord(Exception):
    """A record is wrong. Says which one, by its index among those being read."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(what)
        self.index = index


def _tables() -> tuple[Positions, npt.NDArray[np.int8]]:
    """Two bytes -> the zigzag number that they begin with, and its size; 0: it is longer."""
    words = np.arange(1 << 16, dtype=np.int64)
    low, high = words & 0xFF, words >> 8
    is_short = low < _CONTINUED
    number = np.where(is_short, low, (low & 0x7F) | (high << 7))
    sizes = np.where(is_short, 1, np.where(high < _CONTINUED, 2, 0))
    return (number >> 1) ^ -(number & 1), sizes.astype(np.int8)


_NUMBERS, _SIZES = _tables()


class Fields:
    """Reads fields of records at given positions of one buffer."""

    def __init__(self, raw: Buffer) -> None:
        """At least PADDING bytes of `raw`, with any content, lie behind the last record."""
        self.raw = raw
        self.data: Bytes = np.frombuffer(raw, dtype=np.uint8)
        self._pairs = pairs(self.data)
        self._arrow = pa.py_buffer(raw)

    def numbers(self, at: Positions) -> tuple[Positions, Positions]:
        """Return (zigzag number, position after it) at each position. Raises DamagedRecord."""
        words = self._pairs[at]
        numbers: Positions = _NUMBERS[words]
        sizes = _SIZES[words]
        after = at + sizes
        if np.count_nonzero(sizes) != len(sizes):
            long = np.flatnonzero(sizes == 0)
            numbers[long], after[long] = self._long_numbers(at[long], long)
        return numbers, after

    def _long_numbers(self, at: Positions, index: Positions) -> tuple[Positions, Positions]:
        number = np.zeros(len(at), dtype=np.uint64)
        after = at.copy()
        going = np.arange(len(at))
        for shift in range(0, _VARINT_BITS_MAX + 1, 7):
            byte = self.data[after[going]]
            number[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[going] += 1
            going = going[byte >= _CONTINUED]
            if not len(going):
                break
        else:
            raise DamagedRecord(int(index[going[0]]), "varint of more than ten bytes")
        numbers = (number >> np.uint64(1)).view(np.int64) ^ -(number & np.uint64(1)).view(np.int64)
        return numbers, after

    def lengths(
        self, at: Positions, ends: Positions, what: str, *, nullable: bool = True
    ) -> tuple[Positions, Positions, Positions]:
        """Return (length, position, position after) of the byte strings; length -1: null.

        `ends` is where each record ends. Raises DamagedRecord.
        """
        length, start = self.numbers(at)
        wrong = (length > ends - start) | (length < (_NULL if nullable else 0))
        if wrong.any():
            index = int(np.argmax(wrong))
            left = max(0, int(ends[index] - start[index]))
            raise DamagedRecord(index, f"{what} of {length[index]} bytes, {left} are left")
        return length, start, start + np.maximum(length, 0)

    def strings(self, start: Positions, length: Positions) -> pa.Array:
        """Return byte strings as an Arrow array; a length of -1 is null."""
        count = len(start)
        is_null = length < 0
        null_count = int(np.count_nonzero(is_null))
        if null_count == count:
            return pa.nulls(count, pa.binary())
        bounds = np.empty(2 * count, dtype=np.int32)
        bounds[0::2] = start
        bounds[1::2] = start + np.maximum(length, 0)
        slices = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), self._arrow]
        )
        wanted = np.arange(0, 2 * count, 2, dtype=np.int32)
        return slices.take(pa.array(wanted, mask=is_null if null_count else None))

    def headers(self, at: Positions, counts: Positions, ends: Positions) -> pa.Array:
        """Return the headers that begin `at` as a list<struct<key: string, value: binary>>.

        A record without headers has null there, as in Spark's own source. Raises DamagedRecord.
        """
        # Each header is at least two bytes: this bounds what a wrong count can make us allocate.
        wrong = (counts < 0) | (counts > (ends - at) // 2)
        if wrong.any():
            index = int(np.argmax(wrong))
            raise DamagedRecord(
                index, f"{counts[index]} headers in {ends[index] - at[index]} bytes"
            )
        offsets = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        total = int(offsets[-1])
        key_at, key_length = np.empty(total, np.int64), np.empty(total, np.int64)
        value_at, value_length = np.empty(total, np.int64), np.empty(total, np.int64)
        having = np.flatnonzero(counts)
        slots = offsets[having].astype(np.int64)
        at, ends, left = at[having], ends[having], counts[having]
        while len(having):
            try:
                key_length[slots], key_at[slots], at = self.lengths(
                    at, ends, "header key", nullable=False
                )
                value_length[slots], value_at[slots], at = self.lengths(at, ends, "header value")
            except DamagedRecord as error:
                raise DamagedRecord(int(having[error.index]), str(error)) from None
            slots, left = slots + 1, left - 1
            more = left > 0
            if not more.all():
                at, ends, left = at[more], ends[more], left[more]
                slots, having = slots[more], having[more]
        pairs_array = pa.StructArray.from_arrays(
            [_text(self.strings(key_at, key_length)), self.strings(value_at, value_length)],
            names=["key", "value"],
        )
        return pa.ListArray.from_arrays(
            pa.array(offsets), pairs_array, mask=pa.array(counts == 0)
        ).cast(pa.list_(pa.field("element", pairs_array.type)))


def _text(strings: pa.Array) -> pa.Array:
    """Return byte strings as text. What is not UTF-8 gets replacement characters, as in Java."""
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [item.decode(errors="replace") for item in strings.to_pylist()]
        return pa.array(texts, pa.string())
