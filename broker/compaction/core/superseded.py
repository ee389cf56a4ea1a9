"""Which offsets of what is dirty have a newer record of their key, a bit for each.

The key map knows it the moment it takes the newer one, so the second pass of a round need not look
up the key of a record that it met in the first, and need not even open a batch of which nothing
stays. Only the first offsets, up to a limit, have a bit; what is behind them is looked up.
"""

from __future__ import annotations

from typing import Final

from client.ids import Offset

BITS: Final = 8
"""Of a byte."""


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
