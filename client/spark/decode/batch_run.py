"""Read the headers of many record batches, one behind the other in memory, as columns.

A task sees tens of thousands of batches a second where producers fill them to 16 KiB, and an object
for each header would cost it more than the records do. Python finds where each batch begins; all
else is an array operation for all of them.

Layout of a header: `client/wire/kafka/batches/records.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from client.errors import RemoteProtocolError
from client.spark.decode.record_fields import PADDING, Flags
from client.spark.decode.record_starts import Positions
from client.wire.kafka.batches.records import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    HEADER_KINDS,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    crc_of,
    headers,
)

_HEADER: Final = np.dtype(
    [(name, f">{kind}") for name, kind in zip(BatchHeader._fields, HEADER_KINDS, strict=True)]
)
_HEADER_PLACES: Final = np.arange(HEADER_BYTES)


def _only(name: str) -> struct.Struct:
    """Return what reads one field of a header that begins at a position."""
    index = BatchHeader._fields.index(name)
    before = struct.calcsize(f">{HEADER_KINDS[:index]}")
    return struct.Struct(f">{before}x{HEADER_KINDS[index]}")


_LENGTH: Final = _only("batch_length")
_RECORD_COUNT: Final = _only("record_count")


class BatchHeaders:
    """Headers of batches, a column for each field, and where in a buffer their records lie."""

    def __init__(self, fields: npt.NDArray[np.void], starts: Positions, ends: Positions) -> None:
        """`fields`: of `_HEADER`; `starts` and `ends`: the records of each batch."""
        self._fields = fields
        self.starts = starts
        self.ends = ends

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: slice | Positions) -> Self:
        return type(self)(self._fields[which], self.starts[which], self.ends[which])

    def moved(self, starts: Positions, ends: Positions) -> Self:
        """Return the same headers for records that lie elsewhere now."""
        return type(self)(self._fields, starts, ends)

    def column(self, name: str) -> Positions:
        """Return a field of the headers as 64-bit numbers."""
        return self._fields[name].astype(np.int64)

    @property
    def base_offsets(self) -> Positions:
        """The first offset of each batch."""
        return self.column("base_offset")

    @property
    def next_offsets(self) -> Positions:
        """The offset after each batch's last one."""
        return self.column("base_offset") + self.column("last_offset_delta") + 1

    @property
    def record_counts(self) -> Positions:
        """How many records each batch says it has."""
        return self.column("record_count")

    @property
    def codecs(self) -> Positions:
        """How the records of each batch are compressed."""
        return self.column("attributes") & CODEC_MASK

    @property
    def is_control(self) -> Flags:
        """Which batches carry a transaction marker instead of records."""
        return self._has(CONTROL_BIT)

    @property
    def is_transactional(self) -> Flags:
        """Which batches belong to a transaction."""
        return self._has(TRANSACTIONAL_BIT)

    @property
    def has_log_append_time(self) -> Flags:
        """In which batches `max_timestamp` is the broker's and stands for every record."""
        return self._has(LOG_APPEND_TIME_BIT)

    def _has(self, bit: int) -> Flags:
        flags: Flags = self.column("attributes") & bit != 0
        return flags

    def damaged(self, data: Buffer) -> int | None:
        """Return the base offset of the first batch whose checksum is wrong, if one is."""
        view = memoryview(data)
        starts, ends = (self.starts - HEADER_BYTES).tolist(), self.ends.tolist()
        crcs = self.column("crc").tolist()
        for index, (start, end, crc) in enumerate(zip(starts, ends, crcs, strict=True)):
            if crc_of(view[start:end]) != crc:
                return int(self.base_offsets[index])
        return None


class BatchRun(NamedTuple):
    """Whole record batches, one behind the other."""

    data: Buffer
    """They begin at byte 0. At least PADDING more bytes lie behind them, with any content."""
    size: int
    """Bytes of the batches."""
    headers: BatchHeaders

    @property
    def records(self) -> memoryview:
        """The batches alone."""
        return memoryview(self.data)[: self.size]


def read_run(data: Buffer) -> BatchRun:
    """Read headers up to the first batch that is not whole, or not of format 2.

    `data` ends with PADDING. What to do about bytes behind the last whole batch is for the caller
    to say; `flaw` says what is wrong with them.
    """
    room = len(data) - len(PADDING)
    ends = [0]
    at = 0
    while at + HEADER_BYTES <= room:
        size = _LENGTH.unpack_from(data, at)[0] + LENGTH_PREFIX_BYTES
        if size < HEADER_BYTES or at + size > room:
            break
        at += size
        ends.append(at)
    bounds = np.array(ends, dtype=np.int64)
    starts = bounds[:-1]
    raw = np.frombuffer(data, dtype=np.uint8)[starts[:, None] + _HEADER_PLACES]
    fields = raw.view(_HEADER).reshape(len(starts))
    run = BatchRun(data, at, BatchHeaders(fields, starts + HEADER_BYTES, bounds[1:]))
    old = np.flatnonzero(fields["magic"] != MAGIC)
    return first_batches(run, int(old[0])) if len(old) else run


def flaw(data: Buffer) -> str:
    """Say why bytes do not consist of whole batches; empty: they do."""
    try:
        for _ in headers(data):
            pass
    except RemoteProtocolError as error:
        return str(error)
    return ""


def gathered(chunks: Iterable[Buffer], rows: int, size: int) -> Iterator[list[Buffer]]:
    """Gather chunks of batches until there are this many rows or bytes, whichever comes first.

    Rows are counted by the first batch of each chunk.
    """
    some: list[Buffer] = []
    some_rows = some_size = 0
    for chunk in chunks:
        some.append(chunk)
        some_size += len(chunk)
        if len(chunk) >= HEADER_BYTES:
            some_rows += max(0, _RECORD_COUNT.unpack_from(chunk)[0])
        if some_rows >= rows or some_size >= size:
            yield some
            some, some_rows, some_size = [], 0, 0
    if some:
        yield some


def joined(chunks: Sequence[Buffer]) -> tuple[BatchRun, str]:
    """Join chunks, up to the first one that does not consist of whole batches.

    Returns the whole batches, and what is wrong with the rest of that chunk; empty: nothing.
    """
    run = read_run(b"".join([*chunks, PADDING]))
    bounds = np.cumsum([0, *map(len, chunks)])
    # A chunk that is cut off must not go on in the next one.
    torn = np.flatnonzero(~np.isin(bounds[1:], np.append(0, run.headers.ends)))
    if not len(torn):
        return run, ""
    start, end = bounds[torn[0]], bounds[torn[0] + 1]
    run = first_batches(run, int(np.searchsorted(run.headers.ends, end)))
    rest = memoryview(chunks[torn[0]])[run.size - start :]
    return run, flaw(rest)


def first_batches(run: BatchRun, count: int) -> BatchRun:
    """Return this many batches of a run."""
    kept = run.headers[:count]
    return BatchRun(run.data, int(kept.ends[-1]) if count else 0, kept)
