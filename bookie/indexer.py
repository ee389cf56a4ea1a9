"""Follows the log with the index, and takes checkpoints.

Groups that are durable queue up here; one index job at a time takes all of them. Answers do not
wait for it: until an entry is in the index it is read from the entry cache. After enough log, or
enough time, the next job also flushes the index and saves a checkpoint, so that a start has
little to replay. This file is the only home of that order: index first, flush, then checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bookie.core.append_log import LogPosition, LogWrite
from bookie.core.checkpoint import FILE_NAME, Checkpoint
from bookie.core.group_commit import Group
from bookie.core.log_format import Location
from bookie.disk import Disk
from bookie.index import Index, LedgerRecord, record_of
from client.ids import EntryId, LedgerId


class _Batch:
    """What one index job does, made on the loop."""

    def __init__(self, group: Group, end: LogPosition) -> None:
        self.entries: list[tuple[LedgerId, EntryId, Location]] = []
        self.ledgers: list[tuple[LedgerId, LedgerRecord]] = []
        self.entry_bytes = 0
        self.add(group, end)

    def add(self, group: Group, end: LogPosition) -> None:
        self.entries += group.entries
        self.ledgers += [(ledger.ledger_id, record_of(ledger)) for ledger in group.ledgers]
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
        *,
        checkpoint_bytes: int,
        checkpoint_interval_s: float,
        now_s: float,
        on_indexed: Callable[[LogPosition, int], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_indexed(end, entry bytes)` follows each batch; `on_failed` is called at most once."""
        self._disk = disk
        self._index = index
        self._covered = checkpoint
        """The one that could be taken now: everything before it is in the index."""
        self._checkpoint_bytes = checkpoint_bytes
        self._checkpoint_interval_s = checkpoint_interval_s
        self._taken_at_s = now_s
        self._taken_files = checkpoint.files
        self._log_bytes = 0
        self._on_indexed = on_indexed
        self._on_failed = on_failed
        self._waiting: _Batch | None = None
        self._job: asyncio.Future[None] | None = None
        self._files = list(checkpoint.files)
        self._failed = False

    def put(self, group: Group, write: LogWrite) -> None:
        """Take a group that is durable."""
        if write.number not in self._files:
            self._files.append(write.number)
        self._log_bytes += write.size
        if self._waiting is None:
            self._waiting = _Batch(group, write.end)
        else:
            self._waiting.add(group, write.end)
        if self._job is None and not self._failed:
            self._start()

    def _start(self) -> None:
        batch = self._waiting
        assert batch is not None, "nothing to index"
        self._waiting = None
        self._covered = self._covered._replace(
            start=batch.end, group=batch.group + 1, files=tuple(self._files)
        )
        checkpoint = self._covered if self._is_checkpoint_due() else None

        def job() -> None:
            self._index.write(batch.entries, batch.ledgers, batch.end)
            if checkpoint is not None:
                save_checkpoint(self._disk, self._index, checkpoint)

        self._job = self._disk.index_job(job)
        self._job.add_done_callback(lambda done: self._done(batch, done))

    def _done(self, batch: _Batch, done: asyncio.Future[None]) -> None:
        self._job = None
        error = done.exception()
        if error is not None:
            # Without an index the cache cannot be emptied; a restart rebuilds the index.
            self._failed = True
            self._on_failed(error)
            return
        self._on_indexed(batch.end, batch.entry_bytes)
        if self._waiting is not None:
            self._start()

    def _is_checkpoint_due(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        is_due = (
            self._log_bytes >= self._checkpoint_bytes
            or now_s - self._taken_at_s >= self._checkpoint_interval_s
            or self._covered.files != self._taken_files
        )
        if is_due:
            self._log_bytes = 0
            self._taken_at_s = now_s
            self._taken_files = self._covered.files
        return is_due

    async def close(self) -> None:
        """Wait until everything put so far is indexed, then take a last checkpoint."""
        while self._job is not None:
            await asyncio.wait([self._job])
        if self._failed:
            return
        checkpoint = self._covered
        await self._disk.index_job(lambda: save_checkpoint(self._disk, self._index, checkpoint))


def save_checkpoint(disk: Disk, index: Index, checkpoint: Checkpoint) -> None:
    """Flush the index, then save the checkpoint that relies on it."""
    index.flush()
    disk.save(FILE_NAME, checkpoint.encode())
