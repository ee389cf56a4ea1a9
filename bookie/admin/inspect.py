"""Looking at a bookie's files while it does not run: every record read, every checksum verified.

Nothing is changed, and nothing has to be whole: what cannot be read is reported, the rest is read
all the same. A missing CHECKPOINT costs the list of files that must exist, a broken header nothing
while any other header tells the salt. Damage and torn ends are told apart as a start does it
(`core/log_scan.py`). With an index given, each of its entries is looked up in the log, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from bookie.errors import CorruptIndex, LogIncomplete
from bookie.membership.cookie import FILE_NAME as VERSION
from bookie.membership.cookie import Cookie, decode_cookie
from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    FileHeader,
    Kind,
    LogPosition,
    Record,
    file_name,
    file_number,
    ids_of,
    is_copy,
    ledger_of,
    seed_of,
    unpack_file_header,
    unpack_record,
)
from bookie.storage.core.log_scan import Gap, LogScan
from bookie.storage.index.index import Index
from bookie.storage.index.indexer import FILE_NAME as CHECKPOINT
from bookie.storage.index.indexer import Checkpoint, decode_checkpoint
from client.errors import ConfigError
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.entry import peek_lac

_WORD_BITS: Final = 64


class Readable(Protocol):
    """The part of `Disk` that reads."""

    def names(self) -> list[str]: ...

    def size(self, name: str) -> int: ...

    def read(self, name: str, position: int, size: int) -> bytes: ...

    def load(self, name: str) -> bytes | None: ...


@dataclass
class FileReport:
    """One log file."""

    number: int
    size: int
    record_count: int = 0
    record_bytes: int = 0
    """Headers and bodies of sound records."""
    damage: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of bytes, from and to, that were durable once and are no record now."""
    torn_at: int | None = None
    """Where a write begins that a crash cut short; a start cuts it off. No answer ever left."""

    @property
    def name(self) -> str:
        """Its name in the data directory."""
        return file_name(self.number)

    @property
    def is_copy(self) -> bool:
        """Whether reclaim made it out of other files."""
        return is_copy(self.number)

    @property
    def damaged_bytes(self) -> int:
        """Bytes of all damaged ranges."""
        return sum(end - start for start, end in self.damage)


@dataclass
class LedgerReport:
    """One ledger, as the records of the log tell."""

    ledger_id: LedgerId
    entry_count: int = 0
    entry_bytes: int = 0
    """Of all records of entries, repeated ones included."""
    last_entry: EntryId = NO_ENTRY
    last_confirmed: EntryId = NO_ENTRY
    is_fenced: bool = False
    has_key: bool = False
    _words: dict[int, int] = field(default_factory=dict, repr=False)
    """Which entries were seen, a bit for each."""

    def add(self, entry_id: EntryId, last_confirmed: EntryId, size: int) -> None:
        """Count a record of an entry."""
        word, bit = divmod(entry_id, _WORD_BITS)
        seen = self._words.get(word, 0)
        if not seen >> bit & 1:
            self._words[word] = seen | 1 << bit
            self.entry_count += 1
        self.entry_bytes += size
        self.last_entry = max(self.last_entry, entry_id)
        self.last_confirmed = max(self.last_confirmed, last_confirmed)


@dataclass
class Report:
    """What was found."""

    cookie: Cookie | None = None
    checkpoint: Checkpoint | None = None
    files: list[FileReport] = field(default_factory=list)
    ledgers: dict[LedgerId, LedgerReport] = field(default_factory=dict)
    indexed_entries: int | None = None
    """Entries of the index that were looked up; None: the index was not looked at."""
    problems: list[str] = field(default_factory=list)
    """What is wrong, in words; empty: all is sound."""


class Inspection:
    """One look at one data directory."""

    def __init__(self, disk: Readable, on_file: Callable[[str, int], None]) -> None:
        """`on_file` hears each log file and its size before it is read."""
        self._disk = disk
        self._on_file = on_file
        self._report = Report()
        self._seed: int | None = None
        self._group = 0

    def run(self) -> Report:
        """Read the log. Raises OSError if the directory itself cannot be read."""
        report = self._report
        report.cookie = self._load_cookie()
        report.checkpoint = checkpoint = self._load_checkpoint()
        numbers = self._numbers(checkpoint)
        headers = {number: self._header(number) for number in numbers}
        salts = [header.salt for header in headers.values() if header is not None]
        salt = checkpoint.salt if checkpoint is not None else next(iter(salts), None)
        if salt is None:
            if numbers:
                self._problem("no file has the salt, so no record can be verified")
            return report
        self._seed = seed_of(salt)
        for number in numbers:
            header = headers[number]
            if header is not None and (header.number, header.salt) != (number, salt):
                self._problem(f"{file_name(number)} belongs to another bookie or place")
                continue
            self._scan(number, numbers, headers)
        self._compare_damage()
        return report

    def look_up(self, index: Index) -> None:
        """Look up every entry of the index in the log, which `run` has read."""
        report = self._report
        report.indexed_entries = 0
        wrong = 0
        try:
            for ledger_id, entry_id, place in index.places.all():
                report.indexed_entries += 1
                if not self._is_there(ledger_id, entry_id, *place):
                    wrong += 1
        except CorruptIndex as error:
            self._problem(f"the index is damaged: {error}; it can be rebuilt from the log")
        if wrong:
            self._problem(f"{wrong} entries of the index cannot be read from the log")

    def _is_there(
        self, ledger_id: LedgerId, entry_id: EntryId, number: int, position: int, size: int
    ) -> bool:
        assert self._seed is not None, "the log was read"
        try:
            data = self._disk.read(file_name(number), position, RECORD_HEADER_BYTES + size)
        except OSError:
            return False
        record = unpack_record(memoryview(data), self._seed)
        if record is None or (record.kind, record.position) != (Kind.ENTRY, position):
            return False
        return ids_of(record.body) == (ledger_id, entry_id) and len(record.body) == size

    def _problem(self, text: str) -> None:
        self._report.problems.append(text)

    def _load_cookie(self) -> Cookie | None:
        text = self._disk.load(VERSION)
        if text is None:
            self._problem(
                f"{VERSION} is missing: it is unknown which bookie the directory belongs to"
            )
            return None
        try:
            return decode_cookie(text, VERSION)
        except ConfigError as error:
            self._problem(str(error))
            return None

    def _load_checkpoint(self) -> Checkpoint | None:
        data = self._disk.load(CHECKPOINT)
        try:
            if data is None:
                raise LogIncomplete(f"{CHECKPOINT} is missing")
            return decode_checkpoint(data)
        except LogIncomplete as error:
            self._problem(f"{error}; the bookie does not start")
            return None

    def _numbers(self, checkpoint: Checkpoint | None) -> list[int]:
        """Return the files of the log in the order of their records, as far as that is known."""
        there = sorted(
            number for name in self._disk.names() if (number := file_number(name)) is not None
        )
        if checkpoint is None:
            return there
        newest = max((number for number in there if not is_copy(number)), default=0)
        wanted = [*checkpoint.numbers, *range(checkpoint.newest + 1, newest + 1)]
        for number in wanted:
            if number not in there:
                self._problem(f"{file_name(number)} is missing; the bookie does not start")
        return [number for number in wanted if number in there]

    def _header(self, number: int) -> FileHeader | None:
        try:
            return unpack_file_header(self._disk.read(file_name(number), 0, FILE_HEADER_BYTES))
        except (LogIncomplete, OSError) as error:
            self._problem(f"{file_name(number)}: {error}")
            return None

    def _scan(self, number: int, numbers: list[int], headers: dict[int, FileHeader | None]) -> None:
        name = file_name(number)
        size = self._disk.size(name)
        self._on_file(name, size)
        report = FileReport(number, size)
        self._report.files.append(report)
        assert self._seed is not None, "the salt is known"
        scan = LogScan(
            partial(self._disk.read, name),
            size,
            seed=self._seed,
            group=0 if is_copy(number) else self._group,
            durable=self._durable(number, size, numbers, headers),
        )
        is_newest = number == max((n for n in numbers if not is_copy(n)), default=0)
        # A newest file without a header is one that a crash kept from being made.
        is_begun = not is_newest or scan.is_proven_durable(FILE_HEADER_BYTES + 1)
        if headers[number] is None and is_begun:
            self._problem(f"{name}: its header is damaged")
        try:
            for item in scan:
                if isinstance(item, Gap):
                    report.damage.append((item.start, item.end))
                else:
                    report.record_count += 1
                    report.record_bytes += item.end - item.position
                    self._apply(item)
        except OSError as error:
            self._problem(f"{name} cannot be read from {scan.end} on: {error.strerror}")
            return
        if not is_copy(number):
            self._group = max(self._group, scan.group)
        if scan.is_torn:
            report.torn_at = scan.end
        for start, end in report.damage:
            self._problem(f"{name}: {end - start} bytes from {start} to {end} are damaged")

    def _durable(
        self,
        number: int,
        size: int,
        numbers: list[int],
        headers: dict[int, FileHeader | None],
    ) -> int:
        """Return up to where a file was certainly durable once."""
        header, following = headers[number], headers.get(number + 1)
        if is_copy(number):
            return header.sealed_size if header is not None else size
        if number + 1 in numbers:
            return following.sealed_size if following is not None else size
        checkpoint = self._report.checkpoint
        start = checkpoint.start if checkpoint is not None else LogPosition(0, 0)
        return start.position if start.number == number else 0

    def _apply(self, record: Record) -> None:
        body = record.body
        ledger_id = ledger_of(body)
        ledgers = self._report.ledgers
        if record.kind is Kind.DELETE:
            ledgers.pop(ledger_id, None)
            return
        ledger = ledgers.get(ledger_id)
        if ledger is None:
            ledger = ledgers[ledger_id] = LedgerReport(ledger_id)
        if record.kind is Kind.ENTRY:
            ledger.add(ids_of(body)[1], peek_lac(body), len(body))
        elif record.kind in (Kind.LEDGER, Kind.FENCE):
            ledger.has_key = True
            ledger.is_fenced |= record.kind is Kind.FENCE

    def _compare_damage(self) -> None:
        """Damage that CHECKPOINT remembers counts even if its bytes look well again."""
        checkpoint = self._report.checkpoint
        found = {(file.number, *damage) for file in self._report.files for damage in file.damage}
        for damage in checkpoint.damage if checkpoint is not None else ():
            if tuple(damage) not in found:
                number, start, end = damage
                self._problem(
                    f"{file_name(number)}: {end - start} bytes from {start} to {end} were damaged"
                    " when they were replayed"
                )
