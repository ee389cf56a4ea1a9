"""A log file being written: the live records of several others.

Every method blocks and runs on a reader thread, one call at a time. A record lives if the index
points to it (entries), if its ledger exists (keys, fences), if it is what the index knows
(explicit LACs), if it is young (deletions). Whether it lives may change while we look; then a dead
record is copied, which costs space and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from bookie.errors import CorruptRecord
from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    FileHeader,
    Kind,
    Location,
    Record,
    file_name,
    ids_of,
    ledger_of,
    pack_record_header,
    seed_of,
    unpack_deletion,
)
from bookie.storage.core.log_scan import Gap, LogScan
from bookie.storage.core.reclaim import FileState
from bookie.storage.disk import DataDirectory
from bookie.storage.index.index import EntryPlace, Index, LedgerRecord, Tally
from client.ids import LedgerId
from client.wire.bookkeeper.messages import Buffer

_STEP_BYTES: Final = 1024 * 1024


class CompactedLog:
    """A copy of what lives in `sources`, which are complete files, in log order."""

    def __init__(
        self,
        number: int,
        sources: Sequence[FileState],
        disk: DataDirectory,
        index: Index,
        *,
        salt: int,
        remember_ms: int,
    ) -> None:
        """Deletions after `remember_ms` are still needed."""
        self.number = number
        self.size = 0
        """Bytes written so far; in the end the exact size, 0 if nothing lives."""
        self.tally = Tally()
        self._disk = disk
        self._index = index
        self._salt = salt
        self._seed = seed_of(salt)
        self._remember_ms = remember_ms
        self._records = self._read_sources(sources)
        self._copied: Iterator[tuple[int, Record]] | None = None
        self._known: dict[LedgerId, LedgerRecord | None] = {}

    def step(self) -> tuple[int, bool]:
        """Copy a little. Return the bytes read and written, and whether the copy is complete.

        Raises CorruptRecord for a source that cannot be read in full, OSError when the copy
        cannot be written.
        """
        self._known = {}
        buffers: list[Buffer] = []
        read = 0
        size = self.size or FILE_HEADER_BYTES
        for number, record in self._records:
            read += record.end - record.position
            if self._is_alive(number, record):
                size = self._append(buffers, record, size)
            if read >= _STEP_BYTES:
                return read + self._write(buffers, size), False
        written = self._write(buffers, size)
        if self.size:
            header = FileHeader(self.number, self._salt, 0, sealed_size=self.size)
            self._disk.write(file_name(self.number), 0, [header.pack()])
        return read + written, True

    def begin_again(self) -> None:
        """Let `next_places` begin with the first ones."""
        self._copied = None

    def next_places(self, count_max: int) -> list[EntryPlace]:
        """Return where some entries are in the complete copy, none after the last ones.

        Raises CorruptRecord.
        """
        if self._copied is None:
            self._copied = self._read(self.number, self.size)
        places: list[EntryPlace] = []
        for number, record in self._copied:
            if record.kind is Kind.ENTRY:
                place = Location(number, record.position, len(record.body))
                places.append((*ids_of(record.body), place))
                if len(places) == count_max:
                    break
        return places

    def _read_sources(self, sources: Sequence[FileState]) -> Iterator[tuple[int, Record]]:
        for source in sources:
            yield from self._read(source.number, source.size)

    def _read(self, number: int, size: int) -> Iterator[tuple[int, Record]]:
        """Yield the records of a complete file. Raises CorruptRecord."""
        read = partial(self._disk.read, file_name(number))
        scan = LogScan(read, size, seed=self._seed, durable=size, window_bytes=_STEP_BYTES)
        try:
            for item in scan:
                if isinstance(item, Gap):
                    raise CorruptRecord(number, item.start, f"damaged up to {item.end}")
                yield number, item
        except OSError as error:
            raise CorruptRecord(number, scan.end, f"cannot read: {error}") from error

    def _is_alive(self, number: int, record: Record) -> bool:
        body = record.body
        if record.kind is Kind.DELETE:
            return unpack_deletion(body)[1].time_ms > self._remember_ms
        ledger_id = ledger_of(body)
        if ledger_id not in self._known:
            self._known[ledger_id] = self._index.ledger(ledger_id)
        ledger = self._known[ledger_id]
        if ledger is None:
            return False
        if record.kind is Kind.ENTRY:
            place = Location(number, record.position, len(body))
            return self._index.places.location(*ids_of(body)) == place
        return record.kind is not Kind.EXPLICIT_LAC or ledger.explicit_lac == bytes(body)

    def _append(self, buffers: list[Buffer], record: Record, position: int) -> int:
        """Put a record at `position` of the copy; return where the next one goes."""
        header = pack_record_header(
            self._seed, record.kind, record.group, position, position, record.body
        )
        buffers += (header, record.body)
        end = position + len(header) + len(record.body)
        if record.kind is Kind.DELETE:
            self.tally.add_deletion(unpack_deletion(record.body)[1].time_ms)
        else:
            self.tally.add(ledger_of(record.body), end - position)
        self.tally.end = end
        return end

    def _write(self, buffers: list[Buffer], end: int) -> int:
        if not buffers:
            return 0
        begin = self.size
        if not begin:
            buffers.insert(0, bytes(FILE_HEADER_BYTES))
        self._disk.write(file_name(self.number), begin, buffers)
        self.size = end
        return end - begin
