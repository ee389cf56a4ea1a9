"""Which log files to delete and which to rewrite.

    nothing in it lives                    give it back
    less than the threshold lives          rewrite it: copy what lives, then give it back
    very small, and many such files        rewrite them into one
    cannot be read back in full            leave it alone while anything in it lives

What lives is estimated from tallies, never too low. Files to be rewritten are put together until a
copy would be full, but only neighbours in log order: the copy takes their place, and no record may
pass another. A deletion that came to stand behind the next life of its ledger would end that too.
`compactor.py` carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bookie.storage.core.append_log import FILE_HEADER_BYTES

_TINY_PART: Final = 16
"""A file is very small if that many of it make a full one."""
_TINY_COUNT: Final = 8
"""So many very small files are worth rewriting: each byte is then copied seldom."""


class FileState(NamedTuple):
    """A complete log file."""

    number: int
    size: int
    live_bytes: int
    """Upper bound of what somebody may still need of it."""
    is_readable: bool = True


class Plan(NamedTuple):
    """What to do with the files of a log."""

    give_back: tuple[int, ...]
    rewrite: tuple[tuple[FileState, ...], ...]
    """Each group becomes one copy."""


def plan(files: Sequence[FileState], *, threshold: float, copy_bytes_max: int) -> Plan:
    """Decide; `files` are all files, in log order. With a threshold of 0 nothing is rewritten."""
    dead = tuple(file.number for file in files if file.live_bytes == 0)
    alive = [file for file in files if file.live_bytes > 0 and file.is_readable]
    tiny = [file for file in alive if file.size * _TINY_PART <= copy_bytes_max]
    merged = {file.number for file in tiny} if len(tiny) >= _TINY_COUNT else set()
    wanted = {
        file.number
        for file in alive
        if threshold > 0 and (_live_part(file) < threshold or file.number in merged)
    }
    groups: list[list[FileState]] = []
    room = 0
    for file in files:
        if file.live_bytes == 0:
            continue
        if file.number not in wanted:
            room = 0
            continue
        if file.live_bytes > room:
            groups.append([])
            room = copy_bytes_max
        groups[-1].append(file)
        room -= file.live_bytes
    return Plan(dead, tuple(tuple(group) for group in groups))


def _live_part(file: FileState) -> float:
    return file.live_bytes / max(1, file.size - FILE_HEADER_BYTES)
