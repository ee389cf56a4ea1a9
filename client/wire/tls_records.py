"""What is encrypted at a time: small buffers together, large ones in pieces.

A TLS record holds 16 KiB at most, and costs a header, a tag, a call of OpenSSL's and one more on
the other side, however little it holds: copying some buffers together is cheaper. Encrypted bytes
pass through a buffer of OpenSSL's, which had better stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from client.wire.frames import Chunk

JOINED_BYTES_MAX: Final = 64 << 10
"""Larger buffers are left alone: their last record, half full on average, does not matter."""
PIECE_BYTES_MAX: Final = 256 << 10


def pieces(buffers: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the same bytes in the same order, in pieces for OpenSSL; none is empty.

    Smaller buffers than `JOINED_BYTES_MAX` are joined until they are as large as that.
    """
    small: list[Chunk] = []
    size = 0
    for buffer in buffers:
        if len(buffer) < JOINED_BYTES_MAX:
            small.append(buffer)
            size += len(buffer)
            if size < JOINED_BYTES_MAX:
                continue
            buffer = b""
        if size:
            yield small[0] if len(small) == 1 else b"".join(small)
            small, size = [], 0
        if len(buffer) <= PIECE_BYTES_MAX:
            if buffer:
                yield buffer
        else:
            view = memoryview(buffer)
            for at in range(0, len(view), PIECE_BYTES_MAX):
                yield view[at : at + PIECE_BYTES_MAX]
    if size:
        yield small[0] if len(small) == 1 else b"".join(small)
