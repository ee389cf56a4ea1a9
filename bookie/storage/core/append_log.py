"""What bytes go where in the append log, and when to start another file.

One `AppendLog` per bookie turns records into groups. Records of the open group get their
positions at once, because the index must know them; the group's file is therefore decided when
the group is opened: if the file has reached its limit by then, the group goes to a new file.
A group never spans two files. There is no I/O here: the
shell takes a closed group as a `LogWrite` and performs it.

    append* -> take -> (write and sync) -> append* -> take ...
                    \\-> rewind: the write failed cleanly, the log ends where it ended before

Invariant: `position` is where the next record of the open group goes; `group` grows with every
taken group and is never used twice, even after a rewind, so that leftovers of a failed write are
recognisably older than what overwrites them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bookie.storage.core.log_format import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    FileHeader,
    Kind,
    Location,
    pack_record_header,
    seed_of,
)
from client.fast_tuple import new_tuple
from client.wire.bookkeeper.messages import Buffer


class LogPosition(NamedTuple):
    """A place in the log: everything before it is covered."""

    number: int
    position: int


BEGINNING: Final = LogPosition(0, 0)
"""In front of everything, copies included."""


class LogWrite(NamedTuple):
    """One group on its way to the disk: write `buffers` at `position`, then sync."""

    number: int
    position: int
    buffers: list[Buffer]
    size: int
    group: int
    creates: bool
    """The file does not exist yet; `buffers` begin with its header and `position` is 0."""
    sealed_size: int | None
    """Present when the file before this one is complete: cut it to this size first."""
    may_use_reserve: bool
    """No entries in it (fences, keys): it may use space kept back from adds."""

    @property
    def end(self) -> LogPosition:
        """Where the log ends once this is durable."""
        return LogPosition(self.number, self.position + self.size)


class AppendLog:
    """The end of the log."""

    def __init__(
        self,
        end: LogPosition,
        *,
        group: int,
        salt: int,
        file_bytes_max: int,
        creates_after: int | None = None,
    ) -> None:
        """`end` is where to go on; `group` must be above any group found in the log.

        `creates_after` is given when the file has to be made (again): the size of the file
        before it, 0 for the first file. Then only the number of `end` counts.
        """
        self.number = end.number
        self.position = end.position
        self.group = group
        self.salt = salt
        self._seed = seed_of(salt)
        self._file_bytes_max = file_bytes_max
        self._creates = False
        self._sealed_size: int | None = None
        self._group_start = end.position
        self._buffers: list[Buffer] = []
        self._has_entries = False
        if creates_after is not None:
            self._start_file(end.number, previous_size=creates_after)

    def _start_file(self, number: int, previous_size: int) -> None:
        self.number = number
        self._creates = True
        self._sealed_size = previous_size or None
        header = FileHeader(number, self.salt, self.group, sealed_size=previous_size)
        self._buffers.append(header.pack())
        self.position = self._group_start = FILE_HEADER_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether the open group holds no record."""
        return self.position == self._group_start

    @property
    def open_bytes(self) -> int:
        """Bytes of records in the open group."""
        return self.position - self._group_start

    def append(self, kind: Kind, body: Buffer) -> Location:
        """Put a record into the open group and return where it will be."""
        position = self.position
        header = pack_record_header(self._seed, kind, self.group, self._group_start, position, body)
        self._buffers += (header, body)
        if kind is Kind.ENTRY:
            self._has_entries = True
        self.position = position + RECORD_HEADER_BYTES + len(body)
        return new_tuple(Location, (self.number, position, len(body)))

    def take(self) -> LogWrite:
        """Close the open group, which is not empty, and open the next one behind it."""
        assert not self.is_empty, "nothing to write"
        start = 0 if self._creates else self._group_start
        write = LogWrite(
            self.number,
            start,
            self._buffers,
            self.position - start,
            self.group,
            self._creates,
            self._sealed_size,
            not self._has_entries,
        )
        self._open_group()
        if self.position >= self._file_bytes_max:
            self._start_file(self.number + 1, previous_size=self.position)
        return write

    def rewind(self, failed: LogWrite) -> None:
        """Go back to before `failed`, which did not happen; the open group is dropped as well."""
        self.number = failed.number
        self.position = failed.position
        self._open_group()
        if failed.creates:
            self._start_file(failed.number, previous_size=failed.sealed_size or 0)

    def _open_group(self) -> None:
        self.group += 1
        self._group_start = self.position
        self._buffers = []
        self._has_entries = False
        self._creates = False
        self._sealed_size = None
