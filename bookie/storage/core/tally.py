"""How much of each ledger a log file holds: what tells which files are worth keeping.

A tally is counted as records reach the index and kept in the index beside them, so that nobody has
to read a log file to learn that all of its ledgers are gone. It counts what was written, not what
lives: an entry that was written twice counts twice, so a file never seems emptier than it is. What
an older start did not count is counted as alive. Its bytes:

    end 4 · newest deletion, milliseconds 8 · bytes of deletions 4 · (ledger 8 · bytes 8) ...

`end` is the position in the file up to which records are counted: a replay that starts before
it must not count them again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from bookie.storage.core.log_format import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from client.ids import LedgerId

UNCOUNTED: Final = LedgerId(-1)
"""Stands for records that nobody counted: they count as alive."""

_HEAD: Final = struct.Struct(">IqI")
_SHARE: Final = struct.Struct(">qq")
_DELETE_RECORD_BYTES: Final = RECORD_HEADER_BYTES + 17


class Tally:
    """Bytes of records per ledger in one log file."""

    __slots__ = ("deletion_bytes", "end", "ledgers", "newest_deletion_ms")

    def __init__(self) -> None:
        self.end = 0
        """Records that begin before this position are counted."""
        self.newest_deletion_ms = 0
        """When the youngest deletion recorded in the file happened; 0 for none."""
        self.deletion_bytes = 0
        """Records of deletions."""
        self.ledgers: dict[LedgerId, int] = {}
        """Records of everything else."""

    def add(self, ledger_id: LedgerId, size: int) -> None:
        """Count `size` bytes of a ledger's records."""
        self.ledgers[ledger_id] = self.ledgers.get(ledger_id, 0) + size

    def add_deletion(self, time_ms: int) -> None:
        """Count the record of a deletion."""
        self.deletion_bytes += _DELETE_RECORD_BYTES
        self.newest_deletion_ms = max(self.newest_deletion_ms, time_ms)

    def assume_counted(self, position: int) -> None:
        """Records up to `position` are not going to be counted any more."""
        if self.end < position and position > FILE_HEADER_BYTES:
            self.add(UNCOUNTED, position - self.end)
            self.end = position

    def live_bytes(self, exists: Callable[[LedgerId], bool], remember_ms: int) -> int:
        """Return an upper bound of what lives.

        That is what belongs to ledgers that exist, and deletions after `remember_ms`.
        """
        living = sum(
            size
            for ledger_id, size in self.ledgers.items()
            if ledger_id == UNCOUNTED or exists(ledger_id)
        )
        return living + (self.deletion_bytes if self.newest_deletion_ms > remember_ms else 0)

    def encode(self) -> bytes:
        """Return the bytes of this tally."""
        shares = (_SHARE.pack(*share) for share in self.ledgers.items())
        head = _HEAD.pack(self.end, self.newest_deletion_ms, self.deletion_bytes)
        return head + b"".join(shares)


def decode_tally(data: bytes) -> Tally:
    """Parse what `encode` made."""
    tally = Tally()
    tally.end, tally.newest_deletion_ms, tally.deletion_bytes = _HEAD.unpack_from(data)
    for ledger_id, size in _SHARE.iter_unpack(data[_HEAD.size :]):
        tally.ledgers[LedgerId(ledger_id)] = size
    return tally
