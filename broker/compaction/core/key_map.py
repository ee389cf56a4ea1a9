"""The newest offset of each key in a part of a log, in a table of fixed size.

Each slot takes 24 bytes: 16 of a keyed hash of the key, and the offset. With it comes a byte for
what was superseded (`Superseded`). The key of the hash is
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
_MARK_BYTES: Final = 1
"""For each slot, of what was superseded: a key may have eight records and more."""
SECRET_BYTES: Final = 32
_HASH_BYTES: Final = 16
_LOAD_PERCENT: Final = 90
_HALVES: Final = Struct(">QQ")
_NONE: Final = Offset(-1)

BITS: Final = 8
"""Of a byte."""


class KeyMap:
    """Open addressing in one array, a slot's three numbers side by side: a look at a slot is a look
    at one place of memory. Nothing is ever removed."""

    def __init__(self, slot_count: int, secret: bytes, start: Offset, end: Offset) -> None:
        """`slot_count`: at least two, of which nine in ten may be taken. What it is told of stands
        in [start, end)."""
        assert slot_count > 1
        assert len(secret) == SECRET_BYTES
        self._keyed = blake2b(digest_size=_HASH_BYTES, key=secret)
        """Copied for each key, which is cheaper than to be made."""
        self._left = max(1, slot_count * _LOAD_PERCENT // 100)
        self._slots = slot_count
        self._table = array("Q", (0,)) * (3 * slot_count)
        """For each slot the halves of a hash, the lower one first, and an offset + 1; 0: the slot
        is free."""
        self._count = 0
        marked = min(end, start + BITS * _MARK_BYTES * slot_count)
        self.superseded = Superseded(start, Offset(marked))

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, however many keys are in it."""
        return SLOT_BYTES * self._slots + self.superseded.size_bytes

    def put(self, key: bytes, offset: Offset) -> bool:
        """Note that a key has a record at an offset, which is above all before; False: full."""
        high, low = self._halves(key)
        table, at = self._table, low % self._slots * 3
        if table[at + 2] and (table[at] != low or table[at + 1] != high):
            at = self._slot(high, low)
        older = table[at + 2]
        if older:
            self.superseded.add(Offset(older - 1))
        else:
            if not self._left:
                return False
            self._left -= 1
            self._count += 1
            table[at], table[at + 1] = low, high
        table[at + 2] = offset + 1
        return True

    def newest(self, key: bytes) -> Offset:
        """Return the largest offset of a key; -1: it is not in the table."""
        high, low = self._halves(key)
        table, at = self._table, low % self._slots * 3
        if table[at] != low or table[at + 1] != high:
            at = self._slot(high, low)
        return Offset(table[at + 2] - 1)

    def _halves(self, key: bytes) -> tuple[int, int]:
        state = self._keyed.copy()
        state.update(key)
        high, low = _HALVES.unpack(state.digest())
        return high, low

    def _slot(self, high: int, low: int) -> int:
        """Return where the slot of a hash begins, or the free one where it belongs."""
        table, end = self._table, len(self._table)
        at = low % self._slots * 3
        while (table[at] != low or table[at + 1] != high) and table[at + 2]:
            at += 3
            if at == end:
                at = 0
        return at


def slots_within(bytes_max: int, key_count_max: int) -> int:
    """Return how many slots a round takes that may meet this many keys, within a limit of bytes."""
    wanted = key_count_max * 100 // _LOAD_PERCENT + 2
    return max(2, min(bytes_max // (SLOT_BYTES + _MARK_BYTES), wanted))


class Superseded:
    """Of the offsets in [start, end)."""

    __slots__ = ("_bits", "end", "start")

    def __init__(self, start: Offset, end: Offset) -> None:
        self.start = start
        self.end = max(start, end)
        """Of what is at or above, nothing is known."""
        self._bits = bytearray(-(-(self.end - start) // BITS))

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return len(self._bits)

    def add(self, offset: Offset) -> None:
        """Note that what stands there was superseded, if that offset has a bit."""
        if self.start <= offset < self.end:
            at = offset - self.start
            self._bits[at >> 3] |= 1 << (at & 7)

    def has(self, offset: Offset) -> bool:
        """Whether what stands there was superseded; the offset has a bit."""
        at = offset - self.start
        return self._bits[at >> 3] >> (at & 7) & 1 != 0

    def count(self, start: Offset, end: Offset) -> int:
        """Return how many in a range of offsets were superseded, as far as they have bits."""
        first, last = max(start, self.start) - self.start, min(end, self.end) - self.start
        if first >= last:
            return 0
        bits = int.from_bytes(self._bits[first >> 3 : (last + 7) >> 3], "little")
        return (bits >> (first & 7) & (1 << (last - first)) - 1).bit_count()
