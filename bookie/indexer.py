"""Follows the log with the index, and takes checkpoints.

Groups that are durable queue up here; one index job at a time takes all of them. Answers do not
wait for it: until an entry is in the index it is read from the entry cache. So groups wait a
moment for others: a job costs nearly as much for one entry as for hundreds. After enough log, or
enough time, the next job also flushes the index and saves a checkpoint, so that a start has
little to replay. This file is the only home of that order (index first, flush, then checkpoint)
and of the list of log files that a checkpoint names: who wants to add a copy or give a file back
asks here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from bookie.core.append_log import LogPosition, LogWrite
from bookie.core.checkpoint import FILE_NAME, Checkpoint, LogFile
from bookie.core.group_commit import Group
from bookie.core.ledger_guard import Ledger
from bookie.core.log_format import RECORD_HEADER_BYTES, Deletion, is_copy
from bookie.core.tally import Tally
from bookie.disk import Disk
from bookie.errors import CorruptIndex, DiskFull
from bookie.index import EntryPlace, Index, LedgerRecord, record_of
from client.ids import LedgerId

logger = logging.getLogger(__name__)
T = TypeVar("T")
Deletions = Sequence[tuple[LedgerId, Deletion]]

_GATHER_BYTES_MAX: Final = 1 << 20
"""Entries that do not wait: the cache has to hold them."""
_STATE_BYTES = 64
"""What the record of a key, a fence or an explicit LAC counts for; never nothing."""


class _Batch:
    """What one index job does, made on the loop."""

    def __init__(self) -> None:
        self.entries: list[EntryPlace] = []
        self.ledgers: list[tuple[LedgerId, LedgerRecord]] = []
        self.deletions: list[tuple[LedgerId, Deletion]] = []
        self.groups: list[tuple[LogPosition, Group]] = []
        """For the tallies: each group and where it ends."""
        self.entry_bytes = 0

    def add(self, group: Group, end: LogPosition) -> None:
        self.entries += group.entries
        self.ledgers += [(ledger.ledger_id, _durable(ledger, group)) for ledger in group.ledgers]
        self.deletions += group.deletions
        self.groups.append((end, group))
        self.entry_bytes += group.entry_bytes
        self.end = end
        self.group = group.number


class Indexer:
    """Index and checkpoint behind one log."""

    def __init__(
        self,
        disk: Disk,
        index: Index,
        checkpoint: Checkpoint,
        tally: Tally,
        *,
        checkpoint_bytes: int,
        checkpoint_records: int,
        checkpoint_interval_s: float,
        gather_s: float,
        is_pressed: Callable[[], bool],
        now_s: float,
        on_indexed: Callable[[LogPosition, int, Deletions], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`tally`: of the file that the log ends in; `gather_s`: how long a group waits for others,
        unless `is_pressed`: adds wait for what is held until it is in the index.

        `on_indexed(end, entry bytes, deletions)` follows each batch; `on_failed` is called at
        most once.
        """
        self._disk = disk
        self._index = index
        self._covered = checkpoint
        """The one that could be taken now: everything before it is in the index."""
        self._saved = checkpoint
        """The one on the disk. Written only by jobs of the index lane."""
        self._checkpoint_bytes = checkpoint_bytes
        self._checkpoint_records = checkpoint_records
        self._checkpoint_interval_s = checkpoint_interval_s
        self._gather_s = gather_s
        self._is_pressed = is_pressed
        self._taken_at_s = now_s
        self._taken_newest = checkpoint.newest
        self._log_bytes = 0
        self._log_records = 0
        self._on_indexed = on_indexed
        self._on_failed = on_failed
        self._waiting: _Batch | None = None
        self._job: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Starts a job; there is none while one is in hand."""
        self._indexing = 0
        """Entries that the job in hand puts into the index."""
        self._files = {file.number: file.size for file in checkpoint.files}
        """Log files in the order of their records, and their sizes."""
        self._tallies = {checkpoint.start.number: tally}
        """Of files that are not complete in the index. Touched only by jobs of the index lane."""
        self._is_broken = False
        """A job failed; nothing may be built upon it. Touched only by jobs of the index lane."""
        self._failed = False

    @property
    def waiting_entries(self) -> int:
        """Entries that are durable, but not in the index."""
        return self._indexing + (len(self._waiting.entries) if self._waiting else 0)

    @property
    def checkpoint(self) -> Checkpoint:
        """The one on the disk."""
        return self._saved

    @property
    def complete_files(self) -> list[LogFile]:
        """The files that are in the index as a whole, durably, in order.

        The newest file is never one of them, even if the log will go on in another: the next
        one is made behind it.
        """
        saved = self._saved
        last = min(saved.start.number, saved.newest)
        return [file for file in saved.files if is_copy(file.number) or file.number < last]

    @property
    def damaged_files(self) -> set[int]:
        """Numbers of files with records that nobody can name."""
        return {damage.number for damage in self._saved.damage}

    def put(self, group: Group, write: LogWrite) -> None:
        """Take a group that is durable."""
        if write.number not in self._files:
            if write.sealed_size is not None:
                self._files[write.number - 1] = write.sealed_size
            self._files[write.number] = 0
        self._log_bytes += write.size
        self._log_records += len(group.entries) + len(group.ledgers)
        if self._waiting is None:
            self._waiting = _Batch()
        self._waiting.add(group, write.end)
        self._plan_start()

    async def add_copy(self, number: int, size: int, after: int, tally: Tally) -> None:
        """List a copy, complete and durable, behind the file `after`.

        Raises StorageError; after DiskFull a later checkpoint may list it still.
        """
        files: dict[int, int] = {}
        for known, known_size in self._files.items():
            files[known] = known_size
            if known == after:
                files[number] = size
        assert number in files, "a copy stands where a file of the log stands"
        self._files = files
        await self._change_files([(number, tally)])

    async def give_back(self, numbers: Sequence[int]) -> None:
        """Strike files off the list: nothing in them is needed.

        They may be removed when this returns; after DiskFull they may not, try again.
        """
        self._files = {n: size for n, size in self._files.items() if n not in numbers}
        await self._change_files([(number, None) for number in numbers])

    async def _change_files(self, tallies: Sequence[tuple[int, Tally | None]]) -> None:
        checkpoint = self._covered = self._covered._replace(files=self._listed())

        def work() -> None:
            self._index.set_tallies(tallies)
            self._save(checkpoint)

        await self.job(work)

    def job(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` on the index behind everything that was put, unless the index is broken.

        A failure ends the bookie, unless it is DiskFull. The future raises StorageError, OSError.
        """
        if self._waiting is not None and self._job is None and not self._failed:
            self._start()
        future = self._disk.index_job(lambda: self._run(work))
        future.add_done_callback(self._look_for_failure)
        return future

    def _run(self, work: Callable[[], T]) -> T:
        """In the index lane."""
        if self._is_broken:
            raise CorruptIndex("an earlier change of the index failed")
        try:
            return work()
        except DiskFull:
            raise
        except BaseException:
            self._is_broken = True
            raise

    def _look_for_failure(self, done: asyncio.Future[T]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, DiskFull) and not self._failed:
            # Without an index the cache cannot be emptied; a restart rebuilds the index.
            self._failed = True
            self._on_failed(error)

    def _plan_start(self) -> None:
        batch = self._waiting
        if batch is None or self._job is not None or self._failed:
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
        self._covered = self._covered._replace(
            start=batch.end, group=batch.group + 1, files=self._listed()
        )
        checkpoint = self._covered if self._is_checkpoint_due() else None

        def work() -> None:
            self._count(batch)
            self._index.write(batch.entries, batch.ledgers, batch.end, deletions=batch.deletions)
            if checkpoint is not None:
                self._try_to_save(checkpoint)

        self._job = self.job(work)
        self._job.add_done_callback(lambda done: self._done(batch, done))

    def _count(self, batch: _Batch) -> None:
        """Count a batch's records. In the index lane."""
        for end, group in batch.groups:
            tally = self._tallies.setdefault(end.number, Tally())
            for ledger_id, _, location in group.entries:
                tally.add(ledger_id, RECORD_HEADER_BYTES + location.size)
            for ledger in group.ledgers:
                tally.add(ledger.ledger_id, _STATE_BYTES)
            for _, deletion in group.deletions:
                tally.add_deletion(deletion.time_ms)
            tally.end = end.position

    def _save(self, checkpoint: Checkpoint) -> None:
        """Make the index durable, then save the checkpoint that relies on it. In the index lane."""
        self._index.set_tallies(list(self._tallies.items()))
        newest = max(self._tallies)
        self._tallies = {newest: self._tallies[newest]}
        save_checkpoint(self._disk, self._index, checkpoint)
        self._saved = checkpoint

    def _try_to_save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint that nobody waits for; the last one will do for longer if need be."""
        try:
            self._save(checkpoint)
        except DiskFull as error:
            logger.warning("checkpoint.not_saved error=%s", error)

    def _done(self, batch: _Batch, done: asyncio.Future[None]) -> None:
        self._job = None
        self._indexing = 0
        if done.exception() is not None:
            return
        self._on_indexed(batch.end, batch.entry_bytes, batch.deletions)
        self._plan_start()

    def _listed(self) -> tuple[LogFile, ...]:
        return tuple(LogFile(*file) for file in self._files.items())

    def _is_checkpoint_due(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        is_due = (
            self._log_bytes >= self._checkpoint_bytes
            or self._log_records >= self._checkpoint_records
            or now_s - self._taken_at_s >= self._checkpoint_interval_s
            or self._covered.newest != self._taken_newest
        )
        if is_due:
            self._log_bytes = 0
            self._log_records = 0
            self._taken_at_s = now_s
            self._taken_newest = self._covered.newest
        return is_due

    async def close(self) -> None:
        """Wait until everything put so far is indexed, then take a last checkpoint."""
        while self._job is not None or (self._waiting is not None and not self._failed):
            if self._job is None:
                self._start()
            assert self._job is not None, "it was started"
            await asyncio.wait([self._job])
        if self._failed:
            return
        checkpoint = self._covered
        await self.job(lambda: self._try_to_save(checkpoint))


def _durable(ledger: Ledger, group: Group) -> LedgerRecord:
    """Return what is known of a ledger, as far as `group` made it durable.

    A fence may be in force already while its record is in a later group. If the index knew of
    it, a start would answer for a fence that the log does not have.
    """
    record = record_of(ledger)
    return record if 0 <= ledger.fence_group <= group.number else record._replace(fenced=False)


def save_checkpoint(disk: Disk, index: Index, checkpoint: Checkpoint) -> None:
    """Flush the index, then save the checkpoint that relies on it."""
    index.flush()
    disk.save(FILE_NAME, checkpoint.encode())
