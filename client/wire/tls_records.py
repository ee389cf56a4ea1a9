"""TLS records: what is encrypted at a time, and where whole ones end in what was received.

Small buffers are encrypted together, large ones in pieces.

A TLS record holds 16 KiB at most, and costs a header, a tag, a call of OpenSSL's and one more on
the other side, however little it holds: copying some buffers together is cheaper. Encrypted bytes
pass through a buffer of OpenSSL's, which had better stay in the processor's cache.

OpenSSL decrypts whole records. To ask it for one that is not whole costs as much as to decrypt one
of 16 KiB: Python makes an exception of the answer. So who reads looks at the lengths of records.

Source: RFC 8446, section 5.1; RFC 5246, section 6.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from client.wire.frames import Chunk

JOINED_BYTES_MAX: Final = 64 << 10
"""Larger buffers are left alone: their last record, half full on average, does not matter."""
PIECE_BYTES_MAX: Final = 256 << 10
RECORD_BYTES_MAX: Final = (16 << 10) + 2048
"""The most that the head of a record may announce, by TLS 1.2; by 1.3 it is less."""
_HEAD_BYTES: Final = 5
_TYPES: Final = range(20, 24)
_MAJOR_VERSION: Final = 3


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


class RecordEdge:
    """Where the last whole record ends, in a stream of them that comes in pieces."""

    __slots__ = ("_awaited", "_head", "partial_bytes")

    def __init__(self) -> None:
        self.partial_bytes = 0
        """Bytes at the end of what has come that belong to a record which is not whole. 0 if what
        they begin with is no record: its reader had better be told at once."""
        self._head = b""
        """The head of that record, while it is not whole itself."""
        self._awaited = 0
        """What that record lacks, if its head is whole."""

    def take(self, data: memoryview) -> None:
        """Take notice of the next bytes, which begin where the last ones ended."""
        end, at = len(data), self._awaited
        head, self._head = self._head, b""
        if head:
            known = len(head)
            head += bytes(data[: _HEAD_BYTES - known])
            if len(head) < _HEAD_BYTES:
                self._await_head(head)
                return
            at = _HEAD_BYTES - known + (head[3] << 8 | head[4])
            self._check(head)
        if at > end:
            self._awaited = at - end
            if self.partial_bytes:  # else it is no record
                self.partial_bytes += end
            return
        begin, last = at, end - _HEAD_BYTES
        octets = bytes(data)  # whose indexes are faster than those of a view
        while at <= last:
            begin = at
            at += 5 + (octets[at + 3] << 8 | octets[at + 4])  # 5: _HEAD_BYTES, without a look-up
        if at > end:
            self._awaited = at - end
            self.partial_bytes = end - begin
            self._check(octets[begin : begin + _HEAD_BYTES])
        else:
            self._await_head(octets[at:])

    def _await_head(self, head: bytes) -> None:
        self._head = head
        self._awaited = 0
        self.partial_bytes = len(head)

    def _check(self, head: bytes) -> None:
        is_record = head[0] in _TYPES and head[1] == _MAJOR_VERSION
        if not is_record or (head[3] << 8 | head[4]) > RECORD_BYTES_MAX:
            self.partial_bytes = 0
