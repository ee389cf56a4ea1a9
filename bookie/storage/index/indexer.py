"""Follows the log with the index, and saves how far it has come: the checkpoint.

Groups that are durable queue up here; one index job at a time takes all of them. Answers do not
wait for it: until an entry is in the index it is read from the entry cache. So groups wait a
moment for others: a job costs nearly as much for one entry as for hundreds. After enough log, or
enough time, the next job also flushes the index and saves a checkpoint, so that a start has little
to replay. Who wants to add a copy to the list of log files, or give a file
back, asks here: the list changes in the order of the index jobs.

Rule NOTHING-BEHIND-A-GAP: when the index has no room for a batch, that batch is kept, and put in
again after a while, together with what has come since. Until then every other job fails with
DiskFull: a later batch would say that the index has everything up to its end, and a checkpoint
would let a start believe it.

A checkpoint names the place that a start replays the log from, and the list of log files. It
relies on the index having everything before that place, so the order is: index first, flush, then
checkpoint. Beside it the records of each log file are counted, for whoever gives files back. It is
a small text file, replaced atomically: one line of JSON and one line with its CRC. Everything
before `start` is in the index, durably; from there on the log is read again. `files` are the log
files that must exist, in the order in which they are read: a copy stands where the last file it was
made of stood. Replacing this file is therefore the moment in which a copy or the giving back of a
file comes true. `damage` lists byte ranges whose records could not be read when they were replayed,
so nobody knows what they held. As long as it is not empty, the bookie answers "I cannot say" where
it would otherwise say "no such entry".

`DeletedLedgers` makes the last steps of a deletion: entries out of the index, then the ledger out
of the table.

    log        the record of the end, durable                        (storage.py)
    index      the ledger's record replaced by that of its deletion  (Indexer)
    index      entries removed, a few at a time, behind other work   (here)
    index      the deletion kept as a tombstone if the ledger was fenced, else dropped
    table      the ledger is unknown

A start finishes what a crash interrupted, from the deletion in log or index. Few keys per job: the
index must not fall behind the log because a large ledger goes. Without room for a step it is tried
again after a while, but nobody waits for it: who asked learns that it is not done yet.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import crc32c

from bookie.errors import CorruptIndex, DiskFull, LogIncomplete
from bookie.storage.core.append_log import (
    RECORD_HEADER_BYTES,
    Deletion,
    LogPosition,
    LogWrite,
    is_copy,
)
from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.group_commit import Group, OnDone
from bookie.storage.core.ledger_guard import Ledger, LedgerTable
from bookie.storage.disk import DataDirectory, Disk
from bookie.storage.index.index import EntryPlace, Index, LedgerRecord, Tally, record_of
from client.ids import LedgerId
from client.wire.bookkeeper.messages import Status

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CLEARED_AT_ONCE: Final = 2000
_GATHER_BYTES_MAX: Final = 1 << 20
"""Entries that do not wait: the cache has to hold them."""

FILE_NAME: Final = "CHECKPOINT"
_VERSION: Final = 1

_STATE_BYTES = 64
"""What the record of a key, a fence or an explicit LAC counts for; never nothing."""


class LogFile(NamedTuple):
    """One file of the log."""

    number: int
    size: int
    """Exact size; 0 while the log still grows there, or if a crash came before it was noted."""


class Damage(NamedTuple):
    """Bytes `start` to `end` of a log file that once were durable records and are no more."""

    number: int
    start: int
    end: int


class Checkpoint(NamedTuple):
    """Content of the checkpoint file."""

    salt: int
    """What the record CRCs of this bookie start from."""
    start: LogPosition
    group: int
    """Lowest group number that is certainly unused before `start`."""
    files: tuple[LogFile, ...]
    damage: tuple[Damage, ...] = ()

    @property
    def numbers(self) -> list[int]:
        """Numbers of the files, in order."""
        return [file.number for file in self.files]

    @property
    def newest(self) -> int:
        """Number of the newest file that is no copy; 0 if there is none."""
        return max((number for number in self.numbers if not is_copy(number)), default=0)

    def encode(self) -> bytes:
        """Return the file's content."""
        fields = {
            "version": _VERSION,
            "salt": f"{self.salt:016x}",
            "start": list(self.start),
            "group": self.group,
            "files": [list(file) for file in self.files],
            "damage": [list(damage) for damage in self.damage],
        }
        line = json.dumps(fields).encode()
        return line + b"\n%08x\n" % crc32c.crc32c(line)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Parse the file's content. Raises LogIncomplete when it is damaged or of another version."""
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % crc32c.crc32c(line):
        raise LogIncomplete(f"{FILE_NAME} is damaged: its CRC does not match")
    fields = json.loads(line)
    if fields["version"] != _VERSION:
        raise LogIncomplete(f"{FILE_NAME} has version {fields['version']}, not {_VERSION}")
    return Checkpoint(
        int(fields["salt"], 16),
        LogPosition(*fields["start"]),
        fields["group"],
        tuple(LogFile(*file) for file in fields["files"]),
        tuple(Damage(*damage) for damage in fields["damage"]),
    )


Deletions = Sequence[tuple[LedgerId, Deletion]]


class CheckpointLimits(NamedTuple):
    """After how much a checkpoint is due; see the fields of the same names in `config.py`."""

    checkpoint_bytes: int
    checkpoint_records: int
    checkpoint_interval_s: float


class Batch:
    """What one index job puts into the index, made on the loop."""

    def __init__(self) -> None:
        self.entries: list[EntryPlace] = []
        self.ledgers: list[tuple[LedgerId, LedgerRecord]] = []
        self.deletions: list[tuple[LedgerId, Deletion]] = []
        self.groups: list[tuple[LogPosition, Group]] = []
        """For the tallies: each group and where it ends."""
        self.entry_bytes = 0

    def add(self, group: Group, end: LogPosition) -> None:
        """Take a group that is durable in the log, up to `end`."""
        self.entries += group.entries
        self.ledgers += [(ledger.ledger_id, _durable(ledger, group)) for ledger in group.ledgers]
        self.deletions += group.deletions
        self.groups.append((end, group))
        self.entry_bytes += group.entry_bytes
        self.end = end
        self.group = group.number

    def append(self, newer: Batch) -> None:
        """Take what another one has, which is behind this."""
        self.entries += newer.entries
        self.ledgers += newer.ledgers
        self.deletions += newer.deletions
        self.groups += newer.groups
        self.entry_bytes += newer.entry_bytes
        self.end = newer.end
        self.group = newer.group


class Checkpoints:
    """The checkpoint of one log: as it could be taken, and as it was saved."""

    def __init__(
        self,
        disk: DataDirectory,
        index: Index,
        checkpoint: Checkpoint,
        tally: Tally,
        limits: CheckpointLimits,
        *,
        now_s: float,
    ) -> None:
        """`tally`: of the file that the log ends in."""
        self._disk = disk
        self._index = index
        self._limits = limits
        self.covered = checkpoint
        """The one that could be taken now: everything before it is in the index."""
        self.saved = checkpoint
        """The one on the disk. Written only by jobs of the index thread."""
        self._taken_at_s = now_s
        self._taken_newest = checkpoint.newest
        self._log_bytes = 0
        self._log_records = 0
        self._is_owed = False
        self._files = {file.number: file.size for file in checkpoint.files}
        """Log files in the order of their records, and their sizes."""
        self._tallies = {checkpoint.start.number: tally}
        """Of files that are not complete in the index. Touched only by jobs of the index thread."""

    def complete_files(self) -> list[LogFile]:
        """Return the files that are in the index as a whole, durably, in order."""
        last = min(self.saved.start.number, self.saved.newest)
        return [file for file in self.saved.files if is_copy(file.number) or file.number < last]

    def log_grew(self, group: Group, write: LogWrite) -> None:
        """A group is durable in the log, so it counts towards the next checkpoint."""
        if write.number not in self._files:
            if write.sealed_size is not None:
                self._files[write.number - 1] = write.sealed_size
            self._files[write.number] = 0
        self._log_bytes += write.size
        self._log_records += len(group.entries) + len(group.ledgers)

    def list_copy(self, number: int, size: int, after: int) -> None:
        """List a copy behind the file `after`."""
        files: dict[int, int] = {}
        for known, known_size in self._files.items():
            files[known] = known_size
            if known == after:
                files[number] = size
        assert number in files, "a copy stands where a file of the log stands"
        self._files = files
        self.covered = self.covered._replace(files=self._listed())

    def strike_off(self, numbers: Sequence[int]) -> None:
        """Strike files off the list."""
        self._files = {n: size for n, size in self._files.items() if n not in numbers}
        self.covered = self.covered._replace(files=self._listed())

    def cover(self, batch: Batch) -> Checkpoint | None:
        """The next index job puts a batch in; return the checkpoint it takes behind it, if due."""
        self.covered = self.covered._replace(
            start=batch.end, group=batch.group + 1, files=self._listed()
        )
        is_due = self._is_due() or self._is_owed
        self._is_owed = False
        return self.covered if is_due else None

    def owe(self) -> None:
        """The job that was to take one did not come to it: the next one takes it."""
        self._is_owed = True

    def count(self, batch: Batch) -> None:
        """Count a batch's records. In the index thread."""
        for end, group in batch.groups:
            tally = self._tallies.setdefault(end.number, Tally())
            for ledger_id, _, location in group.entries:
                tally.add(ledger_id, RECORD_HEADER_BYTES + location.size)
            for ledger in group.ledgers:
                tally.add(ledger.ledger_id, _STATE_BYTES)
            for _, deletion in group.deletions:
                tally.add_deletion(deletion.time_ms)
            tally.end = end.position

    def save(self, checkpoint: Checkpoint) -> None:
        """Make the index durable, then save the checkpoint that needs it. In the index thread."""
        self._index.set_tallies(list(self._tallies.items()))
        newest = max(self._tallies)
        self._tallies = {newest: self._tallies[newest]}
        save_checkpoint(self._disk, self._index, checkpoint)
        self.saved = checkpoint

    def try_to_save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint that nobody waits for; the last one will do for longer if need be."""
        try:
            self.save(checkpoint)
        except DiskFull as error:
            logger.warning("checkpoint.not_saved error=%s", error)

    def _listed(self) -> tuple[LogFile, ...]:
        return tuple(LogFile(*file) for file in self._files.items())

    def _is_due(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        limits = self._limits
        is_due = (
            self._log_bytes >= limits.checkpoint_bytes
            or self._log_records >= limits.checkpoint_records
            or now_s - self._taken_at_s >= limits.checkpoint_interval_s
            or self.covered.newest != self._taken_newest
        )
        if is_due:
            self._log_bytes = 0
            self._log_records = 0
            self._taken_at_s = now_s
            self._taken_newest = self.covered.newest
        return is_due


def _durable(ledger: Ledger, group: Group) -> LedgerRecord:
    """Return what is known of a ledger, as far as `group` made it durable.

    A fence may be in force already while its record is in a later group. If the index knew of
    it, a start would answer for a fence that the log does not have.
    """
    record = record_of(ledger)
    return record if 0 <= ledger.fence_group <= group.number else record._replace(fenced=False)


def save_checkpoint(disk: DataDirectory, index: Index, checkpoint: Checkpoint) -> None:
    """Flush the index, then save the checkpoint that relies on it."""
    index.flush()
    disk.save(FILE_NAME, checkpoint.encode())


class DeletedLedgers:
    """Deletions whose record is in the index."""

    def __init__(
        self, ledgers: LedgerTable, cache: EntryCache, index: Index, indexer: Indexer
    ) -> None:
        self._ledgers = ledgers
        self._cache = cache
        self._index = index
        self._indexer = indexer
        self._waiting: dict[LedgerId, OnDone] = {}
        self._settled: dict[LedgerId, Deletion] = {}
        """Gone from the index since this turn of the loop began."""
        self._is_stopped = False

    def expect(self, ledger_id: LedgerId, on_done: OnDone, status: Status) -> None:
        """The record of a deletion is durable, or lost: tell `on_done` when all is done."""
        if status is not Status.OK:
            on_done(status)
        elif self._indexer.has_room:
            self._waiting[ledger_id] = on_done
        else:
            on_done(Status.IO_ERROR)

    def begin(self, deletions: Deletions) -> None:
        """The index has the records of these deletions."""
        for ledger_id, deletion in deletions:
            self._clear(ledger_id, deletion)

    def stop(self) -> None:
        """Leave the rest to the next start."""
        self._is_stopped = True
        self.give_up()

    def give_up(self) -> None:
        """Tell who waits that it is not done; it will be, some time."""
        waiting, self._waiting = self._waiting, {}
        for on_done in waiting.values():
            on_done(Status.IO_ERROR)

    def _clear(self, ledger_id: LedgerId, deletion: Deletion) -> None:
        job = self._indexer.job(partial(self._index.clear_entries, ledger_id, _CLEARED_AT_ONCE))

        def on_cleared(done: asyncio.Future[bool]) -> None:
            error = done.exception()
            if isinstance(error, DiskFull):
                self._later(lambda: self._clear(ledger_id, deletion))
            elif error is None and done.result():
                self._unless_stopped(lambda: self._clear(ledger_id, deletion))
            elif error is None:
                self._unless_stopped(lambda: self._settle(ledger_id, deletion))

        job.add_done_callback(on_cleared)

    def _settle(self, ledger_id: LedgerId, deletion: Deletion) -> None:
        kept = deletion if deletion.fenced else None
        job = self._indexer.job(partial(self._index.settle_deletion, ledger_id, kept))

        def on_settled(done: asyncio.Future[None]) -> None:
            error = done.exception()
            if isinstance(error, DiskFull):
                self._later(lambda: self._settle(ledger_id, deletion))
            elif error is None:
                self._unless_stopped(lambda: self._forget_soon(ledger_id, deletion))

        job.add_done_callback(on_settled)

    def _later(self, again: Callable[[], None]) -> None:
        """There was no room."""
        self.give_up()
        loop = asyncio.get_running_loop()
        loop.call_later(self._indexer.full_retry_s, self._unless_stopped, again)

    def _unless_stopped(self, go_on: Callable[[], None]) -> None:
        if not self._is_stopped:
            go_on()

    def _forget_soon(self, ledger_id: LedgerId, deletion: Deletion) -> None:
        if not self._settled:
            asyncio.get_running_loop().call_soon(self._forget)
        self._settled[ledger_id] = deletion

    def _forget(self) -> None:
        """Forget several at once: the cache is looked through as a whole."""
        settled, self._settled = self._settled, {}
        self._cache.forget_ledgers(settled)
        for ledger_id, deletion in settled.items():
            self._ledgers.bury(ledger_id, deletion)
        for ledger_id in settled:
            on_done = self._waiting.pop(ledger_id, None)
            if on_done is not None:
                on_done(Status.OK)


class Indexer:
    """The index behind one log."""

    def __init__(
        self,
        disk: Disk,
        index: Index,
        checkpoints: Checkpoints,
        *,
        gather_s: float,
        full_retry_s: float,
        is_pressed: Callable[[], bool],
        on_indexed: Callable[[LogPosition, int, Deletions], None],
        on_room: Callable[[bool], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`gather_s`: how long a group waits for others, unless `is_pressed`: adds wait for what
        is held until it is in the index.

        `full_retry_s`: after how long a batch that found no room is tried again.

        `on_indexed(end, entry bytes, deletions)` follows each batch. `on_room` gets False when the
        index has no room for one, also when it still has none, and True when it has been put in.
        `on_failed` is called at most once.
        """
        self._disk = disk
        self._index = index
        self._checkpoints = checkpoints
        self._gather_s = gather_s
        self.full_retry_s = full_retry_s
        """After how long what found no room is tried again."""
        self.has_room = True
        """False while a batch waits for room on the disk."""
        self._is_pressed = is_pressed
        self._on_indexed = on_indexed
        self._on_room = on_room
        self._on_failed = on_failed
        self._waiting: Batch | None = None
        self._job: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Starts a job; there is none while one is in hand."""
        self._indexing = 0
        """Entries that the job in hand puts into the index."""
        self._is_broken = False
        """A job failed; nothing may be built upon it. Touched only by jobs of the index thread."""
        self._has_gap = False
        """A batch was not put in, and is to be the next. Known to the index thread."""
        self._failed = False

    @property
    def waiting_entries(self) -> int:
        """Entries that are durable, but not in the index."""
        return self._indexing + (len(self._waiting.entries) if self._waiting else 0)

    @property
    def memory_bytes(self) -> int:
        """Memory of the index, about."""
        return self._index.memory_bytes()

    @property
    def checkpoint(self) -> Checkpoint:
        """The one on the disk."""
        return self._checkpoints.saved

    @property
    def complete_files(self) -> list[LogFile]:
        """The files that are in the index as a whole, durably, in order.

        The newest file is never one of them, even if the log will go on in another: the next
        one is made behind it.
        """
        return self._checkpoints.complete_files()

    @property
    def damaged_files(self) -> set[int]:
        """Numbers of files with records that nobody can name."""
        return {damage.number for damage in self.checkpoint.damage}

    def put(self, group: Group, write: LogWrite) -> None:
        """Take a group that is durable."""
        self._checkpoints.log_grew(group, write)
        if self._waiting is None:
            self._waiting = Batch()
        self._waiting.add(group, write.end)
        self._plan_start()

    async def add_copy(self, number: int, size: int, after: int, tally: Tally) -> None:
        """List a copy, complete and durable, behind the file `after`.

        Raises StorageError; after DiskFull a later checkpoint may list it still.
        """
        self._checkpoints.list_copy(number, size, after)
        await self._change_files([(number, tally)])

    async def give_back(self, numbers: Sequence[int]) -> None:
        """Strike files off the list: nothing in them is needed.

        They may be removed when this returns; after DiskFull they may not, try again.
        """
        self._checkpoints.strike_off(numbers)
        await self._change_files([(number, None) for number in numbers])

    async def _change_files(self, tallies: Sequence[tuple[int, Tally | None]]) -> None:
        checkpoint = self._checkpoints.covered

        def work() -> None:
            self._index.set_tallies(tallies)
            self._checkpoints.save(checkpoint)

        await self.job(work)

    def job(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` on the index behind everything that was put, unless the index is broken.

        A failure ends the bookie, unless it is DiskFull: then it may be tried again later. The
        future raises StorageError, OSError.
        """
        if self._waiting is not None and self._job is None and self.has_room and not self._failed:
            self._start()
        return self._submit(work, is_batch=False)

    def _submit(self, work: Callable[[], T], *, is_batch: bool) -> asyncio.Future[T]:
        future = self._disk.index_job(lambda: self._run(work, is_batch=is_batch))
        future.add_done_callback(self._look_for_failure)
        return future

    def _run(self, work: Callable[[], T], *, is_batch: bool) -> T:
        """In the index thread."""
        if self._is_broken:
            raise CorruptIndex("an earlier change of the index failed")
        if self._has_gap and not is_batch:
            raise DiskFull("the index waits for room")
        try:
            result = work()
        except DiskFull:
            self._has_gap = self._has_gap or is_batch
            raise
        except BaseException:
            self._is_broken = True
            raise
        if is_batch:
            self._has_gap = False
        return result

    def _look_for_failure(self, done: asyncio.Future[T]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, DiskFull) and not self._failed:
            # Without an index the cache cannot be emptied; a restart rebuilds the index.
            self._failed = True
            self._on_failed(error)

    def _plan_start(self) -> None:
        batch = self._waiting
        if batch is None or self._job is not None or self._failed or not self.has_room:
            return
        is_enough = batch.entry_bytes >= _GATHER_BYTES_MAX or bool(batch.deletions)
        if is_enough or not self._gather_s or self._is_pressed():
            self._start()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._gather_s, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = self._waiting
        assert batch is not None, "nothing to index"
        self._waiting = None
        self._indexing = len(batch.entries)
        checkpoint = self._checkpoints.cover(batch)

        def work() -> None:
            self._index.write(batch.entries, batch.ledgers, batch.end, deletions=batch.deletions)
            self._checkpoints.count(batch)
            if checkpoint is not None:
                self._checkpoints.try_to_save(checkpoint)

        self._job = self._submit(work, is_batch=True)
        self._job.add_done_callback(lambda done: self._done(batch, checkpoint is not None, done))

    def _done(self, batch: Batch, takes_checkpoint: bool, done: asyncio.Future[None]) -> None:
        self._job = None
        self._indexing = 0
        error = done.exception()
        if isinstance(error, DiskFull):
            if takes_checkpoint:
                self._checkpoints.owe()
            self._wait_for_room(batch, error)
            return
        if error is not None:
            return
        had_room, self.has_room = self.has_room, True
        self._on_indexed(batch.end, batch.entry_bytes, batch.deletions)
        if not had_room:
            logger.warning("index.has_room entries=%d", len(batch.entries))
            self._on_room(True)
        self._plan_start()

    def _wait_for_room(self, batch: Batch, error: DiskFull) -> None:
        """Keep a batch that found no room, and put it in later."""
        if self.has_room:
            logger.error("index.no_room error=%s", error)
        self.has_room = False
        if self._waiting is not None:
            batch.append(self._waiting)
        self._waiting = batch
        self._timer = asyncio.get_running_loop().call_later(self.full_retry_s, self._start)
        self._on_room(False)

    async def close(self) -> None:
        """Wait until everything put so far is indexed, then take a last checkpoint.

        If there is no room for it, leave it to the next start.
        """
        while self.has_room and (self._job or (self._waiting is not None and not self._failed)):
            if self._job is None:
                self._start()
            assert self._job is not None, "it was started"
            await asyncio.wait([self._job])
        if self._timer is not None:
            self._timer.cancel()
        if self._failed or not self.has_room:
            return
        checkpoint = self._checkpoints.covered
        await self.job(lambda: self._checkpoints.try_to_save(checkpoint))
