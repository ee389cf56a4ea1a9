"""The newest offset of each key in a part of a log, in a table of fixed size.

Each slot takes 24 bytes: 16 of a keyed hash of the key, and the offset. The key of the hash is
drawn anew for every round, so that nobody can make two keys of one hash on purpose: the older of
them would be lost. By chance that takes some 2^64 keys.

A full table is no error: the round of compaction ends there, and the next one begins there.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from struct import Struct
from typing import Final

from client.ids import Offset

SLOT_BYTES: Final = 24
SECRET_BYTES: Final = 32
_HASH_BYTES: Final = 16
_LOAD_PERCENT: Final = 90
_HALVES: Final = Struct(">QQ")
_NONE: Final = Offset(-1)


class KeyMap:
    """Open addressing over three arrays; nothing is ever removed."""

    def __init__(self, slot_count: int, secret: bytes) -> None:
        """`slot_count`: at least two, of which nine in ten may be taken."""
        assert slot_count > 1
        assert len(secret) == SECRET_BYTES
        self._secret = secret
        self._slots = slot_count
        self._left = max(1, slot_count * _LOAD_PERCENT // 100)
        zeros = bytes(8 * slot_count)
        self._high = array("Q", zeros)
        self._low = array("Q", zeros)
        self._next = array("Q", zeros)
        """Offset + 1; 0: the slot is free."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, however many keys are in it."""
        return SLOT_BYTES * self._slots

    def put(self, key: bytes, offset: Offset) -> bool:
        """Note that a key has a record at an offset, which is above all before; False: full."""
        high, low = self._halves(key)
        at = self._slot(high, low)
        if not self._next[at]:
            if not self._left:
                return False
            self._left -= 1
            self._count += 1
            self._high[at], self._low[at] = high, low
        self._next[at] = offset + 1
        return True

    def newest(self, key: bytes) -> Offset:
        """Return the largest offset of a key; -1: it is not in the table."""
        return Offset(self._next[self._slot(*self._halves(key))] - 1) if self._count else _NONE

    def _halves(self, key: bytes) -> tuple[int, int]:
        digest = blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
        high, low = _HALVES.unpack(digest)
        return high, low

    def _slot(self, high: int, low: int) -> int:
        """Return the slot of a hash, or the free one where it belongs."""
        at = low % self._slots
        offsets, highs, lows = self._next, self._high, self._low
        while offsets[at] and not (lows[at] == low and highs[at] == high):
            at += 1
            if at == self._slots:
                at = 0
        return at


def slots_within(bytes_max: int, key_count_max: int) -> int:
    """Return how many slots a round takes that may meet so many keys, within a limit of bytes."""
    wanted = key_count_max * 100 // _LOAD_PERCENT + 2
    return max(2, min(bytes_max // SLOT_BYTES, wanted))
