"""Reading a log file back: which records are there, what is damage, where the torn end is.

    valid record        magic, CRC, its own position, and a group not below the one before it
    damage              bytes that were durable once and are no valid record now
    torn end            bytes behind everything that was certainly durable: a write that a crash
                        cut short, never answered for

A group is written only after the one before it was synced. So everything before the start of the
newest group that left a valid record was durable, and so was everything before `durable`, which
the caller knows from elsewhere (a sealed file's size, the index). An invalid record in front of
that limit is damage, reported and stepped over; behind it, it is the torn end. Bytes come from a
function, so no I/O here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    Record,
    unpack_record,
    unpack_record_header,
)

ReadAt = Callable[[int, int], bytes]
"""(position, size) -> bytes; fewer only at the end of the file."""

WINDOW_BYTES: Final = 4 * 1024 * 1024


class Gap(NamedTuple):
    """Damaged bytes from `start` to `end`."""

    start: int
    end: int


class _Window:
    """The part of the file in memory, moved along as the scan goes."""

    def __init__(self, read: ReadAt, size: int, window_bytes: int) -> None:
        self._read = read
        self._window_bytes = window_bytes
        self.size = size
        self._start = 0
        self._data = memoryview(b"")

    def at(self, position: int, size: int) -> memoryview:
        """Return the bytes from `position` on: at least `size` of them if the file has them."""
        offset = position - self._start
        available = len(self._data) - offset
        if offset < 0 or available < min(size, self.size - position):
            self._data = memoryview(self._read(position, max(size, self._window_bytes)))
            self._start, offset = position, 0
        return self._data[offset:]


class LogScan:
    """One pass over one file. Iterate, then look at `end`, `group` and `is_torn`."""

    def __init__(
        self,
        read: ReadAt,
        size: int,
        *,
        seed: int,
        start: int = FILE_HEADER_BYTES,
        group: int = 0,
        durable: int = 0,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Scan from `start`; records below `group` are leftovers of failed writes."""
        self._window = _Window(read, size, window_bytes)
        self._seed = seed
        self._durable = durable
        self.end = start
        """Offset behind the last record or gap so far."""
        self.group = group
        """Highest group seen, at least the one given."""
        self.is_torn = False
        """Whether anything but zeros follows `end`."""

    def __iter__(self) -> Iterator[Record | Gap]:
        """Yield records and gaps in order of position. Bodies are valid until the next step."""
        while True:
            record = self._record_at(self.end)
            if record is None or record.group < self.group:
                gap = self._gap_at(self.end)
                if gap is None:
                    self.is_torn = any(self._rest())
                    return
                self.end = gap.end
                yield gap
                continue
            self.end = record.end
            self.group = record.group
            yield record

    def is_proven_durable(self, position: int) -> bool:
        """Whether everything before `position` was certainly durable once."""
        if position <= self._durable:
            return True
        found = self._find(position)
        while found is not None:
            if found.group_start >= position:
                return True
            found = self._find(found.end)
        return False

    def _record_at(self, position: int) -> Record | None:
        """Return the valid record at `position`, whatever its group."""
        data = self._window.at(position, RECORD_HEADER_BYTES)
        if len(data) < RECORD_HEADER_BYTES:
            return None
        header = unpack_record_header(data)
        if header is None or header.position != position or header.group_start > position:
            return None
        if position + RECORD_HEADER_BYTES + header.size > self._window.size:
            return None
        return unpack_record(
            self._window.at(position, RECORD_HEADER_BYTES + header.size), self._seed
        )

    def _find(self, position: int) -> Record | None:
        """Return the first valid record at or behind `position` that is not a leftover."""
        overlap = len(RECORD_MAGIC) - 1
        while position < self._window.size:
            data = self._window.at(position, RECORD_HEADER_BYTES)
            offset = bytes(data).find(RECORD_MAGIC)
            if offset < 0:
                position += max(1, len(data) - overlap)
                continue
            record = self._record_at(position + offset)
            if record is not None and record.group >= self.group:
                return record
            position += offset + 1
        return None

    def _gap_at(self, position: int) -> Gap | None:
        """Return the damage that begins at `position`, None if it is the end of the log."""
        if position >= self._window.size and position >= self._durable:
            return None
        if not self.is_proven_durable(position + 1):
            return None
        found = self._find(position + 1)
        if found is None:
            return Gap(position, self._durable)
        return Gap(position, found.position)

    def _rest(self) -> Iterator[bool]:
        """Tell for each window behind `end` whether it holds anything but zeros."""
        position = self.end
        while position < self._window.size:
            data = self._window.at(position, 1)
            yield bytes(data).count(0) != len(data)
            position += len(data)
