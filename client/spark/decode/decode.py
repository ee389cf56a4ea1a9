"""Decode record batches of format 2 to Arrow, without touching single records in Python.

Batches are judged by the columns of their headers (`batch_run.py`): is it wanted, is it aborted,
does its checksum hold. Then the records of some megabytes of them are decoded in one go, where they
lie if they are not compressed: `record_starts.py` finds the records, `record_fields.py` reads their
fields, `record_group.py` makes columns of them. Rows leave in Arrow batches of about `batch_rows`.

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

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from client.errors import QuireError, RemoteProtocolError
from client.spark.decode.batch_run import BatchHeaders, BatchRun, gathered, joined
from client.spark.decode.record_fields import PADDING, DamagedRecord, Flags
from client.spark.decode.record_group import RecordGroup, base_offset_of
from client.spark.decode.record_starts import RECORD_BYTES_MIN, Positions
from client.spark.schema import HEADERS, arrow_schema
from client.spark.splits import AbortedTransaction
from client.wire.kafka.batches.records import Buffer, Codec, decompress

if TYPE_CHECKING:
    from client.spark.options import Options

BATCH_ROWS: Final = 10_000
"""Rows of an Arrow batch: both fewer and more of them cost Spark more per row."""

BATCH_BYTES: Final = 4 << 20

DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""What the records of one Kafka batch may decompress to."""

_GROUP_BATCHES: Final = 2
"""Arrow batches decoded in one go, by rows: more small records at once cost less each. Large ones
do not, and would only take memory: there bytes are the limit, for one Arrow batch."""


class DamagedBatch(QuireError):
    """Bytes of a topic are not what a producer may send. Names where."""


class Wanted(NamedTuple):
    """What is wanted of a partition, and how rows are to be cut."""

    topic: str
    partition: int
    offset_start: int
    offset_end: int
    columns: Sequence[str]
    """Names of `schema.COLUMNS`, at least one."""
    read_committed: bool = False
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    verified: bool = False
    """Whoever received the batches has compared a checksum of every byte: the batches' own, a tenth
    of the work here, are not computed again."""

    @classmethod
    def by(
        cls,
        options: Options,
        topic: str,
        partition: int,
        offset_start: int,
        offset_end: int,
        *,
        verified: bool,
    ) -> Self:
        """Want a range as a reader's options say."""
        return cls(
            topic,
            partition,
            offset_start,
            offset_end,
            options.columns,
            options.read_committed,
            batch_rows=options.arrow_batch_rows,
            batch_bytes=options.arrow_batch_bytes,
            verified=verified,
        )


def decode(
    chunks: Iterable[Buffer], wanted: Wanted, aborted: Sequence[AbortedTransaction] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `offset_start` <= offset < `offset_end` as Arrow batches.

    `chunks` are whole record batches, one or more each, in the order of the log; they are asked
    for one at a time, so they may come from a network while earlier ones are being decoded.
    `aborted` may be a list that grows while chunks come. The rows have
    `schema.arrow_schema(columns)`. No Arrow batch is empty, nor much larger than `batch_rows` or
    `batch_bytes`, unless one record is.

    Raises DamagedBatch, and whatever `chunks` raises.
    """
    decoder = _Decoder(wanted)
    for some in gathered(chunks, _GROUP_BATCHES * wanted.batch_rows, wanted.batch_bytes):
        run, flaw = joined(some)
        yield from decoder.rows(run, aborted)
        if flaw:
            raise decoder.damaged(decoder.following, flaw)


def decode_runs(
    runs: Iterable[tuple[BatchRun, int]],
    wanted: Wanted,
    aborted: Sequence[AbortedTransaction] = (),
) -> Iterator[pa.RecordBatch]:
    """Do what `decode` does for batches whose headers were read, without joining them first.

    With each run comes an offset below which its records are not wanted, though `wanted` has them.
    """
    decoder = _Decoder(wanted)
    for run, start in runs:
        decoder.following = max(decoder.following, start)
        yield from decoder.rows(run, aborted)


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
    """Turns runs of batches of one partition into rows."""

    def __init__(self, wanted: Wanted) -> None:
        assert wanted.columns
        self._wanted = wanted
        self._schema = arrow_schema(wanted.columns)
        self.following = wanted.offset_start
        """Records below that offset are not wanted any more."""
        self._doomed = _Doomed(())

    def rows(
        self, run: BatchRun, aborted: Sequence[AbortedTransaction]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a run. Raises DamagedBatch."""
        if self._wanted.read_committed and len(aborted) != self._doomed.count:
            self._doomed = _Doomed(aborted)
        headers, starts = self._chosen(run.headers)
        if not len(headers):
            return
        if not self._wanted.verified and (offset := headers.damaged(run.data)) is not None:
            raise self.damaged(offset, "wrong checksum")
        for data, group, of_group in self._groups(run.data, headers, starts):
            size = int((group.ends - group.starts).sum())
            rows = self._decoded(data, group, of_group)
            yield from _sliced(rows, self._wanted.batch_rows, self._wanted.batch_bytes, size)

    def _chosen(self, headers: BatchHeaders) -> tuple[BatchHeaders, Positions]:
        """Return the batches that may hold wanted records, and from which offset on they do."""
        bases, following = headers.base_offsets, headers.next_offsets
        beyond = np.flatnonzero(bases >= self._wanted.offset_end)
        until = int(beyond[0]) if len(beyond) else len(headers)
        may_be_rows = (headers.record_counts != 0) & ~headers.is_control
        if self._doomed.count:
            may_be_rows &= ~self._doomed.flags(headers)
        may_be_rows[until:] = False
        reached = np.where(may_be_rows, following, self.following)
        before = np.maximum.accumulate(np.append(self.following, reached))
        self.following = int(before[-1])
        chosen = np.flatnonzero(may_be_rows & (following > before[:-1]))
        return headers[chosen], before[chosen]

    def _groups(
        self, data: Buffer, headers: BatchHeaders, starts: Positions
    ) -> Iterator[tuple[Buffer, BatchHeaders, Positions]]:
        """Cut a run into what is decoded in one go, decompressed. Raises DamagedBatch."""
        if headers.codecs.any():
            yield from self._decompressed(data, headers, starts)
            return
        self._check_counts(headers)
        rows = np.cumsum(headers.record_counts)
        rows_max = _GROUP_BATCHES * self._wanted.batch_rows
        count = -(-int(rows[-1]) // rows_max)
        cuts = np.searchsorted(rows, rows[-1] * np.arange(1, count) // count) + 1
        bounds = sorted({0, *cuts.tolist(), len(headers)})
        for start, end in itertools.pairwise(bounds):
            yield data, headers[start:end], starts[start:end]

    def _decompressed(
        self, data: Buffer, headers: BatchHeaders, starts: Positions
    ) -> Iterator[tuple[Buffer, BatchHeaders, Positions]]:
        rows_max = _GROUP_BATCHES * self._wanted.batch_rows
        opened: list[Buffer] = []
        first = rows = size = 0
        counts = headers.record_counts.tolist()
        for index, count in enumerate(counts):
            opened.append(self._decompress(data, headers, index))
            rows += count
            size += len(opened[-1])
            if rows < rows_max and size < self._wanted.batch_bytes and index + 1 < len(counts):
                continue
            ends = np.cumsum([len(records) for records in opened])
            begins = np.append(0, ends[:-1])
            which = slice(first, index + 1)
            group = headers[which].moved(begins, ends)
            self._check_counts(group)
            yield b"".join([*opened, PADDING]), group, starts[which]
            opened, first, rows, size = [], index + 1, 0, 0

    def _decompress(self, data: Buffer, headers: BatchHeaders, index: int) -> Buffer:
        records = memoryview(data)[headers.starts[index] : headers.ends[index]]
        try:
            codec = Codec(int(headers.codecs[index]))
            return decompress(codec, records, self._wanted.decompressed_bytes_max)
        except (RemoteProtocolError, ValueError) as error:
            raise self.damaged(int(headers.base_offsets[index]), error) from error

    def _check_counts(self, headers: BatchHeaders) -> None:
        """Raise DamagedBatch where a batch says it has more records than fit into it."""
        counts, sizes = headers.record_counts, headers.ends - headers.starts
        wrong = np.flatnonzero((counts <= 0) | (counts * RECORD_BYTES_MIN > sizes))
        if len(wrong):
            index = wrong[0]
            why = f"{counts[index]} records in {sizes[index]} bytes"
            raise self.damaged(int(headers.base_offsets[index]), why)

    def _decoded(self, data: Buffer, headers: BatchHeaders, starts: Positions) -> pa.RecordBatch:
        """Decode a group. Raises DamagedBatch."""
        try:
            found = RecordGroup(data, headers)
            made = self._columns_of(found)
        except RemoteProtocolError as error:
            raise self.damaged(int(headers.base_offsets[0]), error) from error
        except DamagedRecord as error:
            raise self.damaged(base_offset_of(headers, error.index), error) from error
        rows = pa.RecordBatch.from_arrays(
            [made[name] for name in self._wanted.columns], schema=self._schema
        )
        wanted = found.is_preferred(starts, self._wanted.offset_end)
        return rows if wanted is None else rows.filter(pa.array(wanted))

    def _columns_of(self, found: RecordGroup) -> dict[str, pa.Array]:
        wanted = self._wanted.columns
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
            made["topic"] = pa.repeat(self._wanted.topic, found.count)
        if "partition" in wanted:
            made["partition"] = pa.repeat(
                pa.scalar(self._wanted.partition, pa.int32()), found.count
            )
        return made

    def damaged(self, offset: int, why: object) -> DamagedBatch:
        """Return an error that names the place."""
        return DamagedBatch(
            f"topic {self._wanted.topic} partition {self._wanted.partition}: the batch at offset"
            f" {offset} is damaged: {why}"
        )


class _Doomed:
    """Aborted transactions as columns, by producer and then by offset."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self.count = len(aborted)
        rows = np.array(aborted, dtype=np.int64).reshape(self.count, 3)
        self._rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]

    def flags(self, headers: BatchHeaders) -> Flags:
        """Tell which batches are of these. A producer has one transaction at a time, so those of
        one producer lie side by side; only the one that began last before a batch can have it,
        or the same one again, which an answer may name twice."""
        found = np.zeros(len(headers), dtype=np.bool_)
        of_transactions = np.flatnonzero(headers.is_transactional)
        bases = headers.base_offsets[of_transactions]
        producers = headers.column("producer_id")[of_transactions]
        for producer in np.unique(producers):
            first, last = np.searchsorted(self._rows[:, 0], [producer, producer + 1])
            if first == last:
                continue
            firsts = self._rows[first:last, 1]
            # The farthest end so far: the same transaction may be there in parts.
            ends = np.maximum.accumulate(self._rows[first:last, 2])
            mine = producers == producer
            at = np.searchsorted(firsts, bases[mine], side="right") - 1
            found[of_transactions[mine]] = (at >= 0) & (bases[mine] <= ends[at])
        return found
