"""Decides when a checkpoint is due, what it says, and saves it.

A checkpoint names the place that a start replays the log from, and the list of log files. It
relies on the index having everything before that place, so the order is: index first, flush, then
checkpoint. Beside it the records of each log file are counted, for whoever gives files back.

What says "in the index thread" runs there, one job at a time; the rest runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from bookie.errors import DiskFull
from bookie.storage.core.append_log import LogPosition, LogWrite
from bookie.storage.core.checkpoint import FILE_NAME, Checkpoint, LogFile
from bookie.storage.core.group_commit import Group
from bookie.storage.core.ledger_guard import Ledger
from bookie.storage.core.log_format import RECORD_HEADER_BYTES, Deletion, is_copy
from bookie.storage.core.tally import Tally
from bookie.storage.disk import DataDirectory
from bookie.storage.index.entry_places import EntryPlace
from bookie.storage.index.index import Index, LedgerRecord, record_of
from client.ids import LedgerId

logger = logging.getLogger(__name__)
Deletions = Sequence[tuple[LedgerId, Deletion]]

_STATE_BYTES = 64
"""What the record of a key, a fence or an explicit LAC counts for; never nothing."""


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
        return self.covered if self._is_due() else None

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
