"""Errors of a bookie's storage, below the tree of `client/errors.py`.

StorageError
├── DiskFull         no room for a write, in log or index; it did not happen, the bookie stays up
├── DiskFailed       a write or sync failed: what is durable is unknown, the bookie must stop
├── CorruptRecord    bytes of the log are not what was written: "I cannot say", never "absent"
├── CorruptIndex     the index cannot be read; it can be rebuilt from the log
└── LogIncomplete    files of the log are missing or contradict each other: refuse to start
"""

from __future__ import annotations

from client.errors import Outcome, QuireError


class StorageError(QuireError):
    """Something is wrong with this bookie's disk or what is on it."""


class DiskFull(StorageError):
    """No space left. The write did not happen and the log ends where it ended before."""

    retriable = True


class DiskFailed(StorageError):
    """A write or a sync failed in a way that leaves the durable state unknown.

    After a failed sync the kernel may have dropped the dirty pages, and a later sync would
    succeed without them: retrying would acknowledge lost data. The only safe answer is to stop.
    """

    outcome = Outcome.UNKNOWN


class CorruptRecord(StorageError):
    """A record of the log is damaged, cut off or belongs somewhere else."""

    def __init__(self, number: int, position: int, reason: str) -> None:
        super().__init__(f"log file {number}, position {position}: {reason}")
        self.number = number
        self.position = position


class CorruptIndex(StorageError):
    """The index reported damage of its own."""


class LogIncomplete(StorageError):
    """The log cannot be trusted as a whole; starting could hide acknowledged entries."""
