"""Follows the log with the index.

Groups that are durable queue up here; one index job at a time takes all of them. Answers do not
wait for it: until an entry is in the index it is read from the entry cache. So groups wait a
moment for others: a job costs nearly as much for one entry as for hundreds. After enough log, or
enough time, the next job also flushes the index and saves a checkpoint (`checkpoints.py`), so that
a start has little to replay. Who wants to add a copy to the list of log files, or give a file
back, asks here: the list changes in the order of the index jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from bookie.errors import CorruptIndex, DiskFull
from bookie.storage.core.append_log import LogPosition, LogWrite
from bookie.storage.core.checkpoint import Checkpoint, LogFile
from bookie.storage.core.group_commit import Group
from bookie.storage.core.tally import Tally
from bookie.storage.disk import Disk
from bookie.storage.index.checkpoints import Batch, Checkpoints, Deletions
from bookie.storage.index.index import Index

T = TypeVar("T")

_GATHER_BYTES_MAX: Final = 1 << 20
"""Entries that do not wait: the cache has to hold them."""


class Indexer:
    """The index behind one log."""

    def __init__(
        self,
        disk: Disk,
        index: Index,
        checkpoints: Checkpoints,
        *,
        gather_s: float,
        is_pressed: Callable[[], bool],
        on_indexed: Callable[[LogPosition, int, Deletions], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`gather_s`: how long a group waits for others, unless `is_pressed`: adds wait for what
        is held until it is in the index.

        `on_indexed(end, entry bytes, deletions)` follows each batch; `on_failed` is called at
        most once.
        """
        self._disk = disk
        self._index = index
        self._checkpoints = checkpoints
        self._gather_s = gather_s
        self._is_pressed = is_pressed
        self._on_indexed = on_indexed
        self._on_failed = on_failed
        self._waiting: Batch | None = None
        self._job: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Starts a job; there is none while one is in hand."""
        self._indexing = 0
        """Entries that the job in hand puts into the index."""
        self._is_broken = False
        """A job failed; nothing may be built upon it. Touched only by jobs of the index thread."""
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

        A failure ends the bookie, unless it is DiskFull. The future raises StorageError, OSError.
        """
        if self._waiting is not None and self._job is None and not self._failed:
            self._start()
        future = self._disk.index_job(lambda: self._run(work))
        future.add_done_callback(self._look_for_failure)
        return future

    def _run(self, work: Callable[[], T]) -> T:
        """In the index thread."""
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
        checkpoint = self._checkpoints.cover(batch)

        def work() -> None:
            self._checkpoints.count(batch)
            self._index.write(batch.entries, batch.ledgers, batch.end, deletions=batch.deletions)
            if checkpoint is not None:
                self._checkpoints.try_to_save(checkpoint)

        self._job = self.job(work)
        self._job.add_done_callback(lambda done: self._done(batch, done))

    def _done(self, batch: Batch, done: asyncio.Future[None]) -> None:
        self._job = None
        self._indexing = 0
        if done.exception() is not None:
            return
        self._on_indexed(batch.end, batch.entry_bytes, batch.deletions)
        self._plan_start()

    async def close(self) -> None:
        """Wait until everything put so far is indexed, then take a last checkpoint."""
        while self._job is not None or (self._waiting is not None and not self._failed):
            if self._job is None:
                self._start()
            assert self._job is not None, "it was started"
            await asyncio.wait([self._job])
        if self._failed:
            return
        checkpoint = self._checkpoints.covered
        await self.job(lambda: self._checkpoints.try_to_save(checkpoint))
