"""Record batches that lie one behind the other in memory, and their headers as columns.

This file is the only home of reading the headers of many batches at once. A task sees tens of
thousands of batches a second where producers fill them to 16 KiB, and an object for each header
would cost it more than the records do: what is done for each batch in Python here is to find where
the next one begins, all else is an array operation for all of them.

Layout of a header: `client/wire/kafka/records.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from client.errors import RemoteProtocolError
from client.spark.record_fields import PADDING
from client.spark.record_starts import Positions
from client.wire.kafka.records import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    Buffer,
)

Flags = npt.NDArray[np.bool_]

_FIELDS: Final = {
    "base_offset": (">i8", 0),
    "magic": ("i1", 16),
    "crc": (">u4", 17),
    "attributes": (">i2", 21),
    "last_offset_delta": (">i4", 23),
    "base_timestamp": (">i8", 27),
    "max_timestamp": (">i8", 35),
    "producer_id": (">i8", 43),
    "record_count": (">i4", 57),
}
"""Name -> (type, position)."""
_HEADER: Final = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [kind for kind, _at in _FIELDS.values()],
        "offsets": [at for _kind, at in _FIELDS.values()],
        "itemsize": HEADER_BYTES,
    }
)
_HEADER_PLACES: Final = np.arange(HEADER_BYTES)
_LENGTH: Final = struct.Struct(">8xi")
_RECORD_COUNT: Final = struct.Struct(f">{_FIELDS['record_count'][1]}xi")


class BatchHeaders:
    """Headers of batches, a column for each field, and where in a buffer their records lie."""

    def __init__(self, fields: npt.NDArray[np.void], starts: Positions, ends: Positions) -> None:
        """`fields`: of `_HEADER`; `starts` and `ends`: the records of each batch."""
        self._fields = fields
        self.starts = starts
        self.ends = ends

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: slice | Flags | Positions) -> Self:
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
        of_crc = HEADER_BYTES - CRC_START
        starts = (self.starts - of_crc).tolist()
        wanted = self.column("crc").tolist()
        for index, (start, end, crc) in enumerate(
            zip(starts, self.ends.tolist(), wanted, strict=True)
        ):
            if crc32c(view[start:end]) != crc:
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
    """Read headers up to the first batch that is not whole. `data` ends with PADDING.

    Whether bytes are left behind the last whole batch is for the caller to judge. Raises
    RemoteProtocolError for a format that is not 2.
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
    old = np.flatnonzero(fields["magic"] != MAGIC)
    if len(old):
        raise RemoteProtocolError(
            f"record batch at {starts[old[0]]} has magic {fields['magic'][old[0]]}"
        )
    return BatchRun(data, at, BatchHeaders(fields, starts + HEADER_BYTES, bounds[1:]))


def gathered(chunks: Iterable[Buffer], rows: int, size: int) -> Iterator[BatchRun]:
    """Join chunks of whole batches to runs of about so many rows or bytes, whichever comes first.

    Rows are counted by the first batch of each chunk. Raises RemoteProtocolError for a chunk that
    does not consist of whole batches.
    """
    some: list[Buffer] = []
    some_rows = some_size = 0
    for chunk in chunks:
        some.append(chunk)
        some_size += len(chunk)
        if len(chunk) >= HEADER_BYTES:
            some_rows += max(0, _RECORD_COUNT.unpack_from(chunk)[0])
        if some_rows >= rows or some_size >= size:
            yield _joined(some)
            some, some_rows, some_size = [], 0, 0
    if some:
        yield _joined(some)


def _joined(chunks: list[Buffer]) -> BatchRun:
    run = read_run(b"".join([*chunks, PADDING]))
    ends = np.cumsum([len(chunk) for chunk in chunks])
    # A chunk that is cut off must not go on in the next one.
    torn = np.flatnonzero(~np.isin(ends, run.headers.ends) & (ends > 0))
    if len(torn):
        whole = run.headers.ends[run.headers.ends < ends[torn[0]]]
        at = int(whole[-1]) if len(whole) else 0
        left = int(ends[torn[0]]) - at
        if left < HEADER_BYTES:
            raise RemoteProtocolError(f"{left} bytes at {at} are no record batch")
        size = _LENGTH.unpack_from(run.data, at)[0] + LENGTH_PREFIX_BYTES
        raise RemoteProtocolError(f"record batch at {at} claims {size} of {left} bytes")
    return run
