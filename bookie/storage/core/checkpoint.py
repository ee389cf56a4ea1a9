"""The checkpoint: which files are the log, from where a start has to replay it, what is damaged.

A small text file, replaced atomically: one line of JSON and one line with its CRC. Everything
before `start` is in the index, durably; from there on the log is read again. `files` are the log
files that must exist, in the order in which they are read: a copy stands where the last file it
was made of stood. Replacing this file is therefore the moment in which a copy or the giving back
of a file comes true. `damage` lists byte ranges whose records could not be read when they were
replayed, so nobody knows what they held. As long as it is not empty, the bookie answers "I cannot
say" where it would otherwise say "no such entry".
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

import crc32c

from bookie.errors import LogIncomplete
from bookie.storage.core.append_log import LogPosition
from bookie.storage.core.log_format import is_copy

FILE_NAME: Final = "CHECKPOINT"
_VERSION: Final = 1


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
