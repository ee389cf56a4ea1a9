"""Record batches of format 2 to Arrow, without touching single records in Python.

This file is the only home of which records of a partition become rows. Batches are taken one by
one by their headers alone: is it wanted, is it aborted, does its checksum hold. Their records,
decompressed, are gathered into groups of some megabytes, and a group is decoded in one go:
`record_starts.py` finds the records, `record_fields.py` reads their fields, `record_group.py`
makes columns of them. Rows leave in Arrow batches of about `batch_rows`.

- Offsets grow strictly from row to row, whatever the batches say: a fetch that begins in the
  middle of a batch, or a log that was compacted meanwhile, never gives a record twice. Holes are
  normal.
- Control batches are never rows. With `read_committed` batches of aborted transactions are not
  either; their records are not even decompressed.
- What is damaged is an error that names topic, partition and offset. How much one batch may
  decompress to is bounded.

Sources: Kafka's message format; `KafkaRecordToRowConverter` of spark-sql-kafka for the values of
the columns; KIP-98 for aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from crc32c import crc32c

from client.errors import QuireError, RemoteProtocolError
from client.spark.record_fields import DamagedRecord
from client.spark.record_group import OpenBatch, RecordGroup, base_offset_of
from client.spark.record_starts import RECORD_BYTES_MIN
from client.spark.schema import HEADERS, arrow_schema
from client.spark.splits import AbortedTransaction
from client.wire.kafka.compression import decompress
from client.wire.kafka.records import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    Codec,
    headers,
)

BATCH_ROWS: Final = 10_000
"""Rows of an Arrow batch: both fewer and more of them cost Spark more per row."""

BATCH_BYTES: Final = 4 << 20

DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""What the records of one Kafka batch may decompress to."""

_GROUP_BATCHES: Final = 2
"""Arrow batches decoded in one go, by rows: more small records at once cost less each. Large ones
do not, and are decoded as soon as one batch of them is there: they would only take memory."""


class DamagedBatch(QuireError):
    """Bytes of a topic are not what a producer may send. Names where."""


def decode(
    chunks: Iterable[Buffer],
    topic: str,
    partition: int,
    offset_start: int,
    offset_end: int,
    columns: Sequence[str],
    aborted: Sequence[AbortedTransaction] = (),
    read_committed: bool = False,
    *,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    verified: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `offset_start` <= offset < `offset_end` as Arrow batches.

    `chunks` are whole record batches, one or more each, in the order of the log; they are asked
    for one at a time, so they may come from a network while earlier ones are being decoded.
    `aborted` may be a list that grows while chunks come. `columns` are names of
    `schema.COLUMNS`, at least one; the batches have `schema.arrow_schema(columns)`. No batch is
    empty, nor much larger than `batch_rows` or `batch_bytes`, unless one record is. `verified`:
    whoever received the chunks has compared a checksum of every byte; the batches' own, a tenth of
    the work here, are not computed again.

    Raises DamagedBatch, and whatever `chunks` raises.
    """
    decoder = _Decoder(topic, partition, columns, decompressed_bytes_max, verified)
    group: list[OpenBatch] = []
    rows = size = 0
    following = offset_start
    for chunk in chunks:
        doomed = aborted if read_committed else ()
        for batch in decoder.open_batches(chunk, following, offset_end, doomed):
            following = batch.header.next_offset
            group.append(batch)
            rows += batch.header.record_count
            size += len(batch.records)
            if rows >= _GROUP_BATCHES * batch_rows or size >= batch_bytes:
                found, weight = decoder.rows(group, offset_end), size
                group, rows, size = [], 0, 0  # whoever filled the chunks can use them again
                yield from _sliced(found, batch_rows, batch_bytes, weight)
    if group:
        yield from _sliced(decoder.rows(group, offset_end), batch_rows, batch_bytes, size)


def _sliced(
    rows: pa.RecordBatch, batch_rows: int, batch_bytes: int, size: int
) -> Iterator[pa.RecordBatch]:
    """Cut rows that were decoded from `size` bytes, without copying."""
    count = rows.num_rows
    pieces = max(-(-count // batch_rows), min(count, -(-size // batch_bytes)))
    step = -(-count // pieces) if pieces else 1
    for at in range(0, count, step):
        yield rows.slice(at, step)


class _Decoder:
    """Opens batches of one partition and turns groups of them into rows."""

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str],
        decompressed_bytes_max: int,
        verified: bool,
    ) -> None:
        assert columns
        self._topic = topic
        self._partition = partition
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._decompressed_bytes_max = decompressed_bytes_max
        self._verified = verified

    def open_batches(
        self, chunk: Buffer, following: int, offset_end: int, aborted: Sequence[AbortedTransaction]
    ) -> Iterator[OpenBatch]:
        """Yield the batches of a chunk whose records may be rows. Raises DamagedBatch."""
        view = memoryview(chunk)
        try:
            for at, header in headers(view):
                if header.base_offset >= offset_end:
                    return
                if header.next_offset <= following or not header.record_count:
                    continue
                if header.is_control or _is_aborted(header, aborted):
                    continue
                records = self._open(header, view[at : at + header.size])
                yield OpenBatch(header, records, following)
                following = header.next_offset
        except RemoteProtocolError as error:
            raise self._damaged(following, error) from error

    def rows(self, group: Sequence[OpenBatch], offset_end: int) -> pa.RecordBatch:
        """Decode a group. Raises DamagedBatch."""
        try:
            found = RecordGroup(group)
            made = self._columns_of(found)
        except RemoteProtocolError as error:
            raise self._damaged(group[0].header.base_offset, error) from error
        except DamagedRecord as error:
            raise self._damaged(base_offset_of(group, error.index), error) from error
        rows = pa.RecordBatch.from_arrays(
            [made[name] for name in self._columns], schema=self._schema
        )
        wanted = found.is_wanted(offset_end)
        return rows if wanted is None else rows.filter(pa.array(wanted))

    def _columns_of(self, found: RecordGroup) -> dict[str, pa.Array]:
        wanted = self._columns
        made = found.strings(
            keys="key" in wanted, values="value" in wanted, headers=HEADERS in wanted
        )
        if "timestamp" in wanted:
            made["timestamp"] = found.timestamps()
        if "timestampType" in wanted:
            made["timestampType"] = found.timestamp_types()
        if "offset" in wanted:
            made["offset"] = pa.array(found.offsets)
        if "topic" in wanted:
            made["topic"] = pa.repeat(self._topic, found.count)
        if "partition" in wanted:
            made["partition"] = pa.repeat(pa.scalar(self._partition, pa.int32()), found.count)
        return made

    def _open(self, header: BatchHeader, batch: memoryview) -> Buffer:
        """Verify a batch and return its records, decompressed. Raises DamagedBatch."""
        if not self._verified and crc32c(batch[CRC_START:]) != header.crc:
            raise self._damaged(header.base_offset, "wrong checksum")
        codec = header.attributes & CODEC_MASK
        records: Buffer = batch[HEADER_BYTES:]
        if codec:
            try:
                records = decompress(Codec(codec), records, self._decompressed_bytes_max)
            except (RemoteProtocolError, ValueError) as error:
                raise self._damaged(header.base_offset, error) from error
        if not 0 < header.record_count * RECORD_BYTES_MIN <= len(records):
            raise self._damaged(
                header.base_offset, f"{header.record_count} records in {len(records)} bytes"
            )
        return records

    def _damaged(self, offset: int, why: object) -> DamagedBatch:
        return DamagedBatch(
            f"topic {self._topic} partition {self._partition}: the batch at offset {offset} is"
            f" damaged: {why}"
        )


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        one.producer_id == header.producer_id
        and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted
    )
