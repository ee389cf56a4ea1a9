"""Decode a group of batches in one go: the columns of all their records.

One array operation serves all records of all batches; what differs from batch to batch (base
offset, base timestamp, kind of timestamp) is repeated for each of its records first.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from client.spark.decode.batch_run import BatchHeaders
from client.spark.decode.record_fields import DamagedRecord, Fields
from client.spark.decode.record_starts import RECORD_BYTES_MIN, Positions, record_starts
from client.wire.kafka.batches.records import Buffer

TIMESTAMP_MS_MAX: Final = (1 << 63) // 1000 - 1
"""Spark's timestamps count microseconds in 64 bits."""

_BEYOND: Final = "timestamp beyond Spark's range: leave it out with the option columns"
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class RecordGroup:
    """All records of some batches, column by column."""

    def __init__(self, data: Buffer, headers: BatchHeaders) -> None:
        """Find the records.

        `data`: not compressed, with PADDING behind the last batch; `headers` say where in it the
        records lie, at least one for each batch. Raises DamagedRecord.
        """
        self._headers = headers
        self._counts = headers.record_counts
        self.count = int(self._counts.sum())
        self._fields = Fields(data)
        starts, self._ends = self._bounds()
        self._timestamp_deltas, at = self._fields.numbers(starts + 1)  # behind the attributes
        deltas, self._keys_at = self._fields.numbers(at)
        _check((deltas < 0) | (deltas > self._each("last_offset_delta")), "wrong offset delta")
        growth = np.diff(deltas)
        growth[np.cumsum(self._counts)[:-1] - 1] = 1  # from a batch to the next one
        _check(growth <= 0, "offsets do not grow")
        self.offsets: Positions = self._each("base_offset") + deltas

    def is_preferred(
        self, offset_starts: Positions, offset_end: int
    ) -> npt.NDArray[np.bool_] | None:
        """Return which records are wanted; None: all of them.

        `offset_starts`: of each batch those from there on are wanted.
        """
        headers = self._headers
        if headers.next_offsets[-1] <= offset_end and (offset_starts <= headers.base_offsets).all():
            return None
        start = np.repeat(offset_starts, self._counts)
        wanted: npt.NDArray[np.bool_] = (self.offsets >= start) & (self.offsets < offset_end)
        return wanted

    def timestamps(self) -> pa.Array:
        """Return the timestamps. Raises DamagedRecord for those beyond Spark's range."""
        base = self._each("base_timestamp")
        # Each summand below 2^54: their sum cannot wrap around.
        _check(_beyond(base) | _beyond(self._timestamp_deltas), _BEYOND)
        timestamps = base + self._timestamp_deltas
        by_broker = self._by_broker()
        if by_broker.any():
            timestamps = np.where(by_broker, self._each("max_timestamp"), timestamps)
        _check(_beyond(timestamps), _BEYOND)
        return pa.array(timestamps * 1000).cast(_TIMESTAMP)

    def timestamp_types(self) -> pa.Array:
        """Return 0 where the producer set the timestamp, 1 where the broker did."""
        return pa.array(self._by_broker().astype(np.int32))

    def strings(self, *, keys: bool, values: bool, headers: bool) -> dict[str, pa.Array]:
        """Return those columns. Raises DamagedRecord."""
        fields, ends = self._fields, self._ends
        made: dict[str, pa.Array] = {}
        if not (keys or values or headers):
            return made
        length, start, at = fields.lengths(self._keys_at, ends, "key")
        if keys:
            made["key"] = fields.strings(start, length)
        if not (values or headers):
            return made
        length, start, at = fields.lengths(at, ends, "value")
        if values:
            made["value"] = fields.strings(start, length)
        if headers:
            counts, at = fields.numbers(at)
            made["headers"] = fields.headers(at, counts, ends)
        return made

    def _bounds(self) -> tuple[Positions, Positions]:
        """Return (position behind the length, end) of each record, certainly inside its batch."""
        batch_ends = self._headers.ends
        starts = record_starts(self._fields.data, self._headers.starts, self._counts)
        # Lengths may have led the walk anywhere: what they lead to must be the next record.
        _check(starts >= batch_ends[-1], "its records run beyond its end")
        lengths, after = self._fields.numbers(starts)
        expected = np.empty_like(starts)
        expected[:-1] = starts[1:]
        expected[np.cumsum(self._counts) - 1] = batch_ends
        ends = after + lengths
        _check((ends != expected) | (lengths < RECORD_BYTES_MIN - 1), "wrong record length")
        return after, ends

    def _by_broker(self) -> npt.NDArray[np.bool_]:
        return np.repeat(self._headers.has_log_append_time, self._counts)

    def _each(self, field: str) -> Positions:
        """Return a field of the batch header, repeated for each record."""
        return np.repeat(self._headers.column(field), self._counts)


def base_offset_of(headers: BatchHeaders, index: int) -> int:
    """Return the base offset of the batch that the record with this index belongs to."""
    batch = np.searchsorted(np.cumsum(headers.record_counts), index, side="right")
    return int(headers.base_offsets[batch])


def _beyond(timestamps_ms: Positions) -> npt.NDArray[np.bool_]:
    return (timestamps_ms > TIMESTAMP_MS_MAX) | (timestamps_ms < -TIMESTAMP_MS_MAX)


def _check(wrong: npt.NDArray[np.bool_], what: str) -> None:
    if wrong.any():
        raise DamagedRecord(int(np.argmax(wrong)), what)
