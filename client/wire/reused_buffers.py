"""Large receive buffers that are used again, instead of fresh memory for each large answer.

Covers when a buffer may be written to again: when nobody has a view of it any more. A bytearray
knows that by itself, for it refuses to be resized as long as it is viewed; so no reader has to
give anything back, and one that keeps a view only keeps that buffer.

Fresh memory is dear because its pages are: the kernel clears each one at its first touch, which
costs more than copying into a page that is there.
"""

from __future__ import annotations

from typing import Final

STEP_BYTES: Final = 256 << 10
"""Capacities are multiples of it, so that answers of nearly one size share buffers."""


class ReusedBuffers:
    """Buffers for one thread to take; views of them may be dropped in any thread."""

    def __init__(self, count_max: int) -> None:
        """`count_max`: how many are kept; what is taken beyond them is memory for once."""
        self._count_max = count_max
        self._buffers: list[bytearray] = []

    @property
    def kept_bytes(self) -> int:
        """Memory of the buffers that are kept, viewed or not."""
        return sum(map(len, self._buffers))

    def take(self, size: int) -> memoryview:
        """Return `size` bytes that nobody else views, with any content."""
        for index, buffer in enumerate(self._buffers):
            if _is_viewed(buffer):
                continue
            if len(buffer) >= size:
                return memoryview(buffer)[:size]
            del self._buffers[index]
            break  # too small for what is asked for now: a larger one takes its place
        made = bytearray(-(-size // STEP_BYTES) * STEP_BYTES)
        if len(self._buffers) < self._count_max:
            self._buffers.append(made)
        return memoryview(made)[:size]


def _is_viewed(buffer: bytearray) -> bool:
    try:
        last = buffer.pop()
    except BufferError:
        return True
    buffer.append(last)
    return False
