"""Start after a stop or a crash: read the log from the checkpoint on and update the index.

    1  CHECKPOINT says where to begin, which files must exist, what is damaged already
    2  open the index; if it cannot be opened, or read later on, wipe it and begin at the first file
    3  scan each file, put entries, keys, fences, explicit LACs and deletions into index and
       ledger table
    4  damage in a file: remember the range for good, go on behind it
    5  torn end of the last file: cut it off; nothing in it was ever answered for
    6  sync what is left, flush the index, write the checkpoint: what was replayed stays

Which files there are (`find_files`):

    listed in CHECKPOINT      must exist, in that order
    numbers behind the last   the log went on there after the checkpoint; without a gap
    anything else             left over: a copy that was not finished, a file that was given back

A missing file is a refusal to start: without it, entries would seem not to exist. With damage
nobody knows which entries or fences were in it; the storage then answers "I cannot say" instead of
"no such entry" and takes no ordinary adds. `core/log_scan.py` decides what is damage,
`record_replay.py` carries out what each record says.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple

from bookie.errors import CorruptIndex, LogIncomplete
from bookie.storage.core.append_log import (
    BEGINNING,
    FILE_HEADER_BYTES,
    FIRST_COPY,
    AppendLog,
    FileHeader,
    LogPosition,
    file_name,
    file_number,
    is_copy,
    seed_of,
    unpack_file_header,
)
from bookie.storage.core.ledger_guard import LedgerTable
from bookie.storage.core.log_scan import Gap, LogScan
from bookie.storage.disk import DataDirectory
from bookie.storage.index.index import Index, IndexFactory, Tally
from bookie.storage.index.indexer import (
    FILE_NAME,
    Checkpoint,
    Damage,
    LogFile,
    decode_checkpoint,
)
from bookie.storage.record_replay import RecordReplay
from client.ids import Rng

logger = logging.getLogger(__name__)

FIRST_FILE: Final = 1
_FIRST_GROUP: Final = 1


@dataclass(frozen=True, slots=True)
class Replayed:
    """A log ready to be appended to, and everything that was found in it."""

    log: AppendLog
    index: Index
    ledgers: LedgerTable
    tally: Tally
    """Of the file that the log ends in."""
    checkpoint: Checkpoint
    """As saved at the end of the replay."""
    next_copy: int
    """Number for the next copy of log files."""


def is_unused(disk: DataDirectory) -> bool:
    """Whether nothing was ever written to the log of this data directory."""
    return not any(file_number(name) is not None for name in disk.names())


def init_log(disk: DataDirectory, rng: Rng) -> None:
    """Prepare an empty data directory. Does nothing if that was done before."""
    if disk.load(FILE_NAME) is None:
        start = LogPosition(FIRST_FILE, FILE_HEADER_BYTES)
        checkpoint = Checkpoint(rng.getrandbits(64), start, _FIRST_GROUP, ())
        disk.save(FILE_NAME, checkpoint.encode())


def replay(
    disk: DataDirectory, index_factory: IndexFactory, *, log_file_bytes_max: int
) -> Replayed:
    """Make the bookie's storage consistent. Blocks; run it off the event loop.

    Raises LogIncomplete, CorruptIndex (not even an empty index can be made) or OSError.
    """
    data = disk.load(FILE_NAME)
    if data is None:
        raise LogIncomplete(f"there is no {FILE_NAME}: the data directory is not complete")
    checkpoint = decode_checkpoint(data)
    found = find_files(disk, checkpoint)
    durable = checkpoint.start
    index = _open_index(index_factory, checkpoint)
    if index is not None:
        durable = max(durable, index.end() or durable)
        try:
            return _bring_up(disk, index, checkpoint, found, durable, log_file_bytes_max)
        except CorruptIndex as error:
            logger.error("index.rebuild reason=%r", str(error))
    checkpoint = checkpoint._replace(start=BEGINNING, group=_FIRST_GROUP)
    # Before the index fills: a crash on the way must lead here again.
    disk.save(FILE_NAME, checkpoint.encode())
    return _bring_up(disk, index_factory(True), checkpoint, found, durable, log_file_bytes_max)


class Found(NamedTuple):
    """Log files of a data directory."""

    log: list[LogFile]
    """The log, in the order of its records."""
    left_over: list[int]
    """Numbers of files that nothing needs."""


def find_files(disk: DataDirectory, checkpoint: Checkpoint) -> Found:
    """Look which log files exist. Raises LogIncomplete if one is missing."""
    there = sorted(number for name in disk.names() if (number := file_number(name)) is not None)
    newest_there = max((number for number in there if not is_copy(number)), default=0)
    later = range(checkpoint.newest + 1, newest_there + 1)
    log = [*checkpoint.files, *(LogFile(number, 0) for number in later)]
    missing = [file.number for file in log if file.number not in there]
    if missing:
        raise LogIncomplete(
            f"log file {missing[0]} is missing: without it, entries would seem not to exist"
        )
    needed = {file.number for file in log}
    return Found(log, [number for number in there if number not in needed])


def remove_left_over(disk: DataDirectory, found: Found) -> None:
    """Remove files that nothing needs. Raises OSError."""
    for number in found.left_over:
        logger.info("log.removes_left_over number=%d", number)
        disk.remove(file_name(number))


def next_copy(found: Found) -> int:
    """Return a number for the next copy that no file of the log has."""
    return max((file.number + 1 for file in found.log if is_copy(file.number)), default=FIRST_COPY)


def _bring_up(
    disk: DataDirectory,
    index: Index,
    checkpoint: Checkpoint,
    found: Found,
    durable: LogPosition,
    log_file_bytes_max: int,
) -> Replayed:
    """Read the log from the checkpoint on into the index."""
    try:
        newest = max((f.number for f in found.log if not is_copy(f.number)), default=0)
        if durable > LogPosition(newest + 1, FILE_HEADER_BYTES):
            raise LogIncomplete(f"log file {newest + 1} is missing, but the index refers to it")
        return _Replay(disk, index, checkpoint, found, durable, log_file_bytes_max).run()
    except BaseException:
        index.close()
        raise


def _open_index(index_factory: IndexFactory, checkpoint: Checkpoint) -> Index | None:
    """Return the index, None if it has to be rebuilt from the whole log."""
    try:
        index = index_factory(False)
        end = index.end()
        # One that knows less than the checkpoint says is another index, or an emptied one.
        if end is not None and end >= checkpoint.start:
            return index
        if end is None and not checkpoint.files:
            return index
        index.close()
        reason = f"it ends at {end}, the checkpoint is at {checkpoint.start}"
    except CorruptIndex as error:
        reason = str(error)
    logger.error("index.rebuild reason=%r", reason)
    return None


class _Replay:
    """One replay: which files are read, from where, and where the log goes on."""

    def __init__(
        self,
        disk: DataDirectory,
        index: Index,
        checkpoint: Checkpoint,
        found: Found,
        durable: LogPosition,
        log_file_bytes_max: int,
    ) -> None:
        self._disk = disk
        self._index = index
        self._checkpoint = checkpoint
        self._start = checkpoint.start
        self._found = found
        self._files = {file.number: file.size for file in found.log}
        self._durable = durable
        self._log_file_bytes_max = log_file_bytes_max
        self._seed = seed_of(checkpoint.salt)
        self._group = checkpoint.group
        self._damage = list(checkpoint.damage)
        self._records = RecordReplay(index)

    def run(self) -> Replayed:
        self._records.load_ledgers()
        newest = max((n for n in self._files if not is_copy(n)), default=FIRST_FILE - 1)
        for number in list(self._files):
            if number != newest and self._must_scan(number):
                self._scan_complete(number)
        log = self._scan_last(newest)
        end = LogPosition(log.number, log.position)
        self._records.write_index(end)
        self._index.flush()
        files = tuple(LogFile(*file) for file in self._files.items())
        checkpoint = self._checkpoint._replace(
            start=end,
            group=log.group,
            files=files,
            damage=tuple(sorted(set(self._damage))),
        )
        self._disk.save(FILE_NAME, checkpoint.encode())
        remove_left_over(self._disk, self._found)
        logger.info(
            "log.replayed files=%d records=%d ledgers=%d damaged_ranges=%d",
            len(files),
            self._records.count,
            len(self._records.ledgers),
            len(checkpoint.damage),
        )
        records = self._records
        tally = records.tally_of(log.number)
        return Replayed(
            log, self._index, records.ledgers, tally, checkpoint, next_copy(self._found)
        )

    def _must_scan(self, number: int) -> bool:
        """Whether anything in this file may be missing in the index."""
        return self._start == BEGINNING or self._start.number <= number < FIRST_COPY

    def _scan_complete(self, number: int) -> None:
        """Scan a file that has a successor: all of it was durable."""
        size = self._disk.size(file_name(number))
        if not self._files[number] and not is_copy(number):
            # A crash came before its size was noted: the next file says it.
            following = self._header(number + 1)
            self._files[number] = following.sealed_size if following else size
        self._apply_all(number, self._begin_scan(number, size, self._files[number]))
        self._records.write_index(LogPosition(number, size))

    def _scan_last(self, number: int) -> AppendLog:
        """Scan the newest file and return the log, ready to go on behind it."""
        wanted = max(self._start.number, FIRST_FILE)
        if number < wanted:
            size = self._disk.size(file_name(number)) if number >= FIRST_FILE else 0
            return self._resume(LogPosition(wanted, 0), creates_after=size)
        name = file_name(number)
        # What is read here goes into the index and must not vanish with the next crash.
        self._disk.uncache(name)
        size = self._disk.size(name)
        self._disk.truncate(name, size)
        durable = self._durable.position if self._durable.number == number else 0
        scan = self._begin_scan(number, size, durable)
        if self._header(number) is None and not scan.is_proven_durable(FILE_HEADER_BYTES + 1):
            # The crash came while the file was being made: nothing in it was ever durable.
            logger.warning("log.unfinished_file number=%d", number)
            previous = self._disk.size(file_name(number - 1)) if number - 1 in self._files else 0
            return self._resume(LogPosition(number, 0), creates_after=previous)
        damage_count = len(self._damage)
        self._apply_all(number, scan)
        if len(self._damage) > damage_count:
            # Leave the damaged file as it is and go on in another one.
            return self._resume(LogPosition(number + 1, 0), creates_after=size)
        if scan.is_torn:
            logger.warning("log.torn_end number=%d position=%d", number, scan.end)
        self._disk.truncate(name, scan.end)
        return self._resume(LogPosition(number, scan.end), creates_after=None)

    def _resume(self, end: LogPosition, creates_after: int | None) -> AppendLog:
        if creates_after is not None:
            # A file that has to be made again must not be missed if it is gone next time: the
            # kill that cut its making short may have come before its name was durable.
            self._files = {n: size for n, size in self._files.items() if n != end.number}
        return AppendLog(
            end,
            group=self._group + 1,
            salt=self._checkpoint.salt,
            file_bytes_max=self._log_file_bytes_max,
            creates_after=creates_after,
        )

    def _header(self, number: int) -> FileHeader | None:
        header = unpack_file_header(self._disk.read(file_name(number), 0, FILE_HEADER_BYTES))
        if header is None:
            logger.warning("log.bad_file_header number=%d", number)
            return None
        if header.number != number or header.salt != self._checkpoint.salt:
            raise LogIncomplete(f"{file_name(number)} belongs to another bookie or place")
        return header

    def _begin_scan(self, number: int, size: int, durable: int) -> LogScan:
        name = file_name(number)
        start = self._start.position if number == self._start.number else FILE_HEADER_BYTES
        self._records.begin_file(number, start)
        return LogScan(
            lambda position, count: self._disk.read(name, position, count),
            size,
            seed=self._seed,
            start=start,
            group=0 if is_copy(number) else self._group,
            durable=durable,
        )

    def _apply_all(self, number: int, scan: LogScan) -> None:
        for item in scan:
            if isinstance(item, Gap):
                self._found_damage(Damage(number, item.start, item.end))
            else:
                self._records.apply(number, item)
        self._group = max(self._group, scan.group)

    def _found_damage(self, damage: Damage) -> None:
        logger.error(
            "log.damaged number=%d start=%d end=%d", damage.number, damage.start, damage.end
        )
        self._damage.append(damage)
