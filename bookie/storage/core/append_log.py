"""The append log: the layout of its files, which is on disk for ever, and what goes where in them.

    file     header 64 · record · record · ...
    header   magic 8 "QuireLog" · version 4 · number 4 · salt 8 · first group 8 ·
             size of the previous file, in a copy its own 8 · zeros 20 · crc32c 4
    record   magic 4 "Qrec" · crc32c 4 · body size 4 · kind 1 · zeros 3 · group 8 ·
             group start 4 · position 4 · body

All integers are big-endian and unsigned. The CRC of a record covers everything behind it, header
and body, and starts from the bookie's salt, so a client cannot place bytes in an entry that
would pass for a record. `position` is the record's own offset in its file, `group` the number
of the group commit that wrote it and `group start` the offset of that group's first record.
A group is written only after the sync of the group before it has returned. Hence the rule that
tells damage from a torn write: a record of group g proves that everything before g's start was
durable once. Numbers from `FIRST_COPY` on are those of copies: files that reclaim made out of
the living records of others, and that are complete. See FORMAT.md for bodies and replay.

One `AppendLog` per bookie turns records into groups. Records of the open group get their
positions at once, because the index must know them; the group's file is therefore decided when
the group is opened: if the file has reached its limit by then, the group goes to a new file.
A group never spans two files. There is no I/O here: the shell takes a closed group as a `LogWrite`
and performs it.

    append* -> take -> (write and sync) -> append* -> take ...
                    \\-> rewind: the write failed cleanly, the log ends where it ended before

Invariant: `position` is where the next record of the open group goes; `group` grows with every
taken group and is never used twice, even after a rewind, so that leftovers of a failed write are
recognisably older than what overwrites them.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

import crc32c

from bookie.errors import LogIncomplete
from client.fast_tuple import new_tuple
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import Buffer

_crc32c = crc32c.crc32c

FORMAT_VERSION: Final = 1

FILE_MAGIC: Final = b"QuireLog"
FILE_HEADER_BYTES: Final = 64
_FILE_HEADER: Final = struct.Struct(">8sIIQQQ20s")
_CRC: Final = struct.Struct(">I")

RECORD_MAGIC: Final = b"Qrec"
RECORD_HEADER_BYTES: Final = 32
_RECORD_TAIL: Final = struct.Struct(">IB3xQII")
"""What the CRC covers of a record's header: all but magic and CRC."""
_RECORD_HEAD: Final = struct.Struct(">4sI")
_RECORD_HEADER: Final = struct.Struct(">4sIIB3xQII")

_IDS: Final = struct.Struct(">qq")
_ID: Final = struct.Struct(">q")
_DELETION: Final = struct.Struct(">q?q")

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Sanity limit of a scan; a larger body size is damage."""
FILE_BYTES_MAX: Final = 2**31
"""No file grows beyond this, so that positions fit 4 bytes with room for the last group."""
FIRST_COPY: Final = 2**31
"""Number of the first copy; files that the log grew by are numbered from 1."""


class Kind(enum.IntEnum):
    """What a record's body is."""

    ENTRY = 1
    """The entry envelope as received; ledger and entry id are its first 16 bytes."""
    LEDGER = 2
    """ledger id 8 · master key: the ledger exists here and this is its key."""
    FENCE = 3
    """ledger id 8 · master key: no more adds, except by recovery."""
    EXPLICIT_LAC = 4
    """LAC packet as received; the ledger id is its first 8 bytes."""
    DELETE = 5
    """ledger id 8 · fenced 1 · milliseconds 8: everything before about this ledger is void."""


_ENTRY: Final = int(Kind.ENTRY)
_KINDS: Final = {int(kind): kind for kind in Kind}


class Location(NamedTuple):
    """Where a record is: file number, offset of its header, size of its body."""

    number: int
    position: int
    size: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the record."""
        return self.position + RECORD_HEADER_BYTES + self.size


class FileHeader(NamedTuple):
    """The fixed part at the start of a log file."""

    number: int
    salt: int
    first_group: int
    sealed_size: int
    """Size at which the file before this one was sealed, 0 for the first file; a copy's own."""

    def pack(self) -> bytes:
        """Return the 64 bytes."""
        head = _FILE_HEADER.pack(FILE_MAGIC, FORMAT_VERSION, *self, bytes(20))
        return head + _CRC.pack(crc32c.crc32c(head))


def unpack_file_header(data: Buffer) -> FileHeader | None:
    """Return the header, None if it is absent or damaged.

    Raises LogIncomplete if a newer program wrote it.
    """
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, version, *fields, _ = _FILE_HEADER.unpack_from(data)
    crc = _CRC.unpack_from(data, _FILE_HEADER.size)[0]
    if magic != FILE_MAGIC or crc != crc32c.crc32c(data[: _FILE_HEADER.size]):
        return None
    if version != FORMAT_VERSION:
        raise LogIncomplete(f"log file format {version} is not {FORMAT_VERSION}")
    return FileHeader(*fields)


def file_name(number: int) -> str:
    """Return the name of a log file inside the data directory."""
    return f"log/{number:010d}.log"


def file_number(name: str) -> int | None:
    """Return the number of a log file's name, None for any other name."""
    stem, dot, suffix = name.removeprefix("log/").partition(".")
    if not name.startswith("log/") or suffix != "log" or not dot or not stem.isdecimal():
        return None
    return int(stem)


def is_copy(number: int) -> bool:
    """Whether a file of this number was made by reclaim."""
    return number >= FIRST_COPY


def seed_of(salt: int) -> int:
    """Return what the CRC of every record starts from."""
    return crc32c.crc32c(salt.to_bytes(8, "big"))


class RecordHeader(NamedTuple):
    """A record's header, verified only together with its body."""

    crc: int
    size: int
    kind: int
    group: int
    group_start: int
    position: int


class Record(NamedTuple):
    """A verified record."""

    kind: Kind
    group: int
    group_start: int
    position: int
    body: memoryview

    @property
    def end(self) -> int:
        """Offset of the first byte after the record."""
        return self.position + RECORD_HEADER_BYTES + len(self.body)


def pack_record_header(
    seed: int, kind: Kind, group: int, group_start: int, position: int, body: Buffer
) -> bytes:
    """Return the 32 bytes that go before `body`."""
    tail = _RECORD_TAIL.pack(len(body), kind, group, group_start, position)
    crc = _crc32c(body, _crc32c(tail, seed))
    return _RECORD_HEAD.pack(RECORD_MAGIC, crc) + tail


def unpack_record_header(data: Buffer, offset: int = 0) -> RecordHeader | None:
    """Return the header at `offset` if it could be one, None if it certainly is none.

    `data` holds at least 32 bytes from `offset`.
    """
    magic, *fields = _RECORD_HEADER.unpack_from(data, offset)
    header = RecordHeader(*fields)
    plausible = magic == RECORD_MAGIC and header.kind in _KINDS and header.size <= BODY_BYTES_MAX
    return header if plausible else None


def unpack_record(data: memoryview, seed: int, offset: int = 0) -> Record | None:
    """Return the record at `offset` of `data` if it is whole and its CRC holds, else None.

    Whether it stands where it belongs is for the caller to compare: `Record.position`.
    """
    if len(data) - offset < RECORD_HEADER_BYTES:
        return None
    header = unpack_record_header(data, offset)
    if header is None or len(data) - offset < RECORD_HEADER_BYTES + header.size:
        return None
    body = data[offset + RECORD_HEADER_BYTES : offset + RECORD_HEADER_BYTES + header.size]
    tail = data[offset + 8 : offset + RECORD_HEADER_BYTES]
    if header.crc != crc32c.crc32c(body, crc32c.crc32c(tail, seed)):
        return None
    return Record(_KINDS[header.kind], header.group, header.group_start, header.position, body)


def entry_body(data: memoryview, seed: int, position: int, size: int) -> memoryview | None:
    """Return the body of the ENTRY record that stands at `position` of its file and has `size`
    bytes of body, if `data` is that record and its CRC holds, else None."""
    if len(data) != RECORD_HEADER_BYTES + size:
        return None
    magic, crc, body_size, kind, _, _, found_at = _RECORD_HEADER.unpack_from(data)
    if magic != RECORD_MAGIC or kind != _ENTRY or body_size != size or found_at != position:
        return None
    body = data[RECORD_HEADER_BYTES:]
    is_right = crc == _crc32c(body, _crc32c(data[8:RECORD_HEADER_BYTES], seed))
    return body if is_right else None


def pack_ledger(ledger_id: LedgerId, master_key: bytes) -> bytes:
    """Return the body of a LEDGER or FENCE record."""
    return _ID.pack(ledger_id) + master_key


def unpack_ledger(body: Buffer) -> tuple[LedgerId, bytes]:
    """Return (ledger id, master key) of a LEDGER or FENCE body."""
    return LedgerId(_ID.unpack_from(body)[0]), bytes(body[_ID.size :])


class Deletion(NamedTuple):
    """What is left of a ledger that was deleted."""

    fenced: bool
    """It was fenced: adds of a writer that does not know yet must be refused for a while."""
    time_ms: int
    """When, in milliseconds since 1970."""


def pack_deletion(ledger_id: LedgerId, deletion: Deletion) -> bytes:
    """Return the body of a DELETE record."""
    return _DELETION.pack(ledger_id, *deletion)


def unpack_deletion(body: Buffer) -> tuple[LedgerId, Deletion]:
    """Return what a DELETE body says."""
    ledger_id, fenced, time_ms = _DELETION.unpack(body)
    return LedgerId(ledger_id), Deletion(fenced, time_ms)


def ledger_of(body: Buffer) -> LedgerId:
    """Return the ledger id that every kind of body begins with."""
    return LedgerId(_ID.unpack_from(body)[0])


def ids_of(body: Buffer) -> tuple[LedgerId, EntryId]:
    """Return (ledger id, entry id) of an ENTRY body."""
    ledger_id, entry_id = _IDS.unpack_from(body)
    return LedgerId(ledger_id), EntryId(entry_id)


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
