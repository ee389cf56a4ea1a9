"""Which log files there are, at a start: those that must exist, and what may be thrown away.

    listed in CHECKPOINT      must exist, in that order
    numbers behind the last   the log went on there after the checkpoint; without a gap
    anything else             left over: a copy that was not finished, a file that was given back

A missing file is a refusal to start: without it, entries would seem not to exist.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from bookie.errors import LogIncomplete
from bookie.storage.core.checkpoint import Checkpoint, LogFile
from bookie.storage.core.log_format import FIRST_COPY, file_name, file_number, is_copy
from bookie.storage.disk import DataDirectory

logger = logging.getLogger(__name__)


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
