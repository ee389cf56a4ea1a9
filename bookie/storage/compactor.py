"""Reclaims log files: deletes those without live records, rewrites those with few.

    1  records that live go from the old files into a new one, the copy: a little at a time,
       synced each time, at a limited pace, on a reader thread
    2  the copy is complete and durable; CHECKPOINT lists it behind the last of the old files
    3  the index is pointed to the copy, a few entries at a time
    4  the index is flushed; CHECKPOINT no longer lists the old files
    5  the old files are removed

A crash before 2 leaves a file that nobody lists, one before 4 both copies of everything, one
before 5 old files that nobody lists: all of that is tidied up by a start or the next run. Before 4
nothing has been taken away; so a copy that is not durable, or an index that does not know it yet,
costs nothing (Apache BookKeeper issues 1534, 1536). Groups of adds never wait for any of it: copies
are other files than the log's end, and index jobs are short.

What is unreadable is never copied and never dropped: a file with a damaged record stays as it is,
and the others go on (4525, 4544).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, NamedTuple

from bookie.errors import CorruptRecord, DiskFull
from bookie.metrics import BookieMetrics
from bookie.storage.compacted_log import CompactedLog
from bookie.storage.core.append_log import file_name
from bookie.storage.core.reclaim import FileState, plan
from bookie.storage.disk import Disk
from bookie.storage.index.index import Index
from bookie.storage.index.indexer import Indexer, LogFile

logger = logging.getLogger(__name__)

_MOVED_AT_ONCE: Final = 1000


class CompactorLimits(NamedTuple):
    """Bounds of reclaim; see the fields of the same names in `config.py`."""

    copy_bytes_max: int
    reclaim_bytes_per_s: int
    free_bytes_min: int
    deletion_memory_ms: int


class Compactor:
    """Reclaims the log files of one directory."""

    def __init__(
        self,
        disk: Disk,
        index: Index,
        indexer: Indexer,
        limits: CompactorLimits,
        *,
        salt: int,
        next_copy: int,
        metrics: BookieMetrics,
    ) -> None:
        """`next_copy`: a number that no copy in the log has."""
        self._disk = disk
        self._index = index
        self._indexer = indexer
        self._limits = limits
        self._salt = salt
        self._next_copy = next_copy
        self._metrics = metrics
        self._unreadable: set[int] = set()
        self._unfinished: tuple[CompactedLog, tuple[int, ...]] | None = None
        """A copy that is complete, and the files that it stands for; it may be listed already. No
        other copy of them is made: of two, one would be read behind what came after it."""
        self._struck_off: tuple[int, ...] = ()
        """Files that no checkpoint should list any more, but that are still there."""

    async def run(self, threshold: float, now_ms: int) -> None:
        """Give back what can be given back. Raises StorageError when the index fails.

        Files are rewritten if less than `threshold` (0 to 1) of them lives.
        """
        remember_ms = now_ms - self._limits.deletion_memory_ms
        try:
            await self._give_back(())
            await self._put_into_use()
            files = await self._survey(remember_ms)
            todo = plan(files, threshold=threshold, copy_bytes_max=self._limits.copy_bytes_max)
            self._metrics.dropped_file_bytes += await self._give_back(todo.give_back)
            for group in todo.rewrite:
                if not await self._has_room(group):
                    logger.warning("reclaim.no_room files=%d", len(group))
                    return
                await self._rewrite(group, remember_ms)
        except DiskFull as error:
            logger.warning("reclaim.no_room error=%s", error)

    async def _survey(self, remember_ms: int) -> list[FileState]:
        """Estimate what lives in each complete file, in log order."""
        return [
            await self._disk.reader_job(partial(self._look_at, file, remember_ms))
            for file in self._indexer.complete_files
        ]

    def _look_at(self, file: LogFile, remember_ms: int) -> FileState:
        size = file.size or self._size(file.number)
        tally = self._index.tally(file.number)
        if tally is None or file.number in self._indexer.damaged_files:
            # What was in damaged bytes is in no tally.
            return FileState(file.number, size, size, is_readable=False)
        live_bytes = tally.live_bytes(
            lambda ledger_id: self._index.ledger(ledger_id) is not None, remember_ms
        )
        return FileState(file.number, size, live_bytes, file.number not in self._unreadable)

    def _size(self, number: int) -> int:
        return self._disk.size(file_name(number))

    async def _has_room(self, group: tuple[FileState, ...]) -> bool:
        usage = await self._disk.reader_job(self._disk.usage)
        return usage.free - sum(file.live_bytes for file in group) > self._limits.free_bytes_min

    async def _rewrite(self, group: tuple[FileState, ...], remember_ms: int) -> None:
        number, self._next_copy = self._next_copy, self._next_copy + 1
        sources = tuple(file.number for file in group)
        size = sum(file.size for file in group)
        logger.info("reclaim.rewrites files=%d bytes=%d copy=%d", len(group), size, number)
        copy = CompactedLog(
            number, group, self._disk, self._index, salt=self._salt, remember_ms=remember_ms
        )
        if not await self._make(copy):
            await self._disk.reader_job(partial(self._disk.remove, file_name(number)))
            return
        self._unfinished = (copy, sources)
        await self._put_into_use()

    async def _put_into_use(self) -> None:
        """Let the copy that is complete, if any, take the place of its sources.

        After DiskFull the next run begins here again.
        """
        if self._unfinished is None:
            return
        copy, sources = self._unfinished
        if copy.size:
            await self._indexer.add_copy(copy.number, copy.size, sources[-1], copy.tally)
            copy.begin_again()
            if not await self._point_to(copy, sources):
                self._unfinished = None
                return
        self._unfinished = None
        self._metrics.rewritten_file_bytes += await self._give_back(sources) - copy.size

    async def _make(self, copy: CompactedLog) -> bool:
        """Make the copy at the allowed pace; False if that is impossible."""
        loop = asyncio.get_running_loop()
        is_complete = False
        while not is_complete:
            began_s = loop.time()
            try:
                touched, is_complete = await self._disk.reader_job(copy.step)
            except CorruptRecord as error:
                self._leave_alone(error)
                return False
            except (OSError, DiskFull) as error:
                logger.error("reclaim.copy_failed number=%d error=%s", copy.number, error)
                return False
            wanted_s = touched / self._limits.reclaim_bytes_per_s
            await asyncio.sleep(max(0.0, wanted_s - (loop.time() - began_s)))
        return True

    async def _point_to(self, copy: CompactedLog, sources: tuple[int, ...]) -> bool:
        """Let the index find in the copy what it still looks for in the old files."""
        try:
            while places := await self._disk.reader_job(partial(copy.next_places, _MOVED_AT_ONCE)):
                await self._indexer.job(partial(self._index.move, places, sources))
        except CorruptRecord as error:
            self._leave_alone(error)
            return False
        return True

    def _leave_alone(self, error: CorruptRecord) -> None:
        logger.error("reclaim.unreadable_file reason=%s", error)
        self._metrics.unreadable_files += 1
        self._unreadable.add(error.number)

    async def _give_back(self, numbers: tuple[int, ...]) -> int:
        """Strike off and remove files, also those that could not be last time; return their size.

        Raises DiskFull when the list cannot be written.
        """
        self._struck_off += numbers
        if not self._struck_off:
            return 0
        await self._indexer.give_back(self._struck_off)
        numbers, self._struck_off = self._struck_off, ()
        sizes = await self._disk.reader_job(lambda: [self._size(number) for number in numbers])
        for number, size in zip(numbers, sizes, strict=True):
            logger.info("reclaim.gives_back number=%d bytes=%d", number, size)
            await self._disk.reader_job(partial(self._disk.remove, file_name(number)))
        return sum(sizes)
