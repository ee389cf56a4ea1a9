"""Splitting a byte stream into frames: a 4-byte big-endian length, then that many bytes.

Covers framing; Kafka and BookKeeper share it, on servers and clients. The length is checked as
soon as its four bytes are there, before anything is kept for it, so a peer can make us hold at
most one frame of the agreed size. A frame that lies within one received chunk is handed out as a
view of that chunk, without a copy; a frame spread over several chunks is joined once. What is held
costs what was received: the end of a chunk is copied, and small pieces are copied together, so that
a frame that comes in crumbs is not a list of crumbs, and a crumb does not keep its chunk alive. A
very large frame grows in one piece: to join it at its end would hold up everybody else for as long
as that takes, some 50 ms for 100 MB.

Whoever receives frames of megabytes can say where their bytes go before they are read from the
socket, which saves two copies of all of them: `intake.py`, or `FrameReceiver` where buffers are
used again.
"""

from __future__ import annotations

import struct
from typing import Final

from client.errors import RemoteProtocolError
from client.wire.reused_buffers import ReusedBuffers

_LENGTH: Final = struct.Struct(">i")
LENGTH_BYTES: Final = _LENGTH.size
_TLS_RECORD: Final = b"\x16\x03"
"""A handshake of TLS begins so; as a length it would be 369 MB."""
_SMALL_BYTES: Final = 4096
"""Pieces below this are copied: an object of its own for each would cost a multiple of them."""
GROWN_BYTES_MIN: Final = 4 << 20
"""A larger frame grows piece by piece: the allocator extends it by moving pages, not bytes."""

Chunk = bytes | bytearray | memoryview


class FrameSplitter:
    """Bytes in, complete frames (without their length) out.

    After `feed` raised, the stream has lost its frame boundaries: the connection must be closed
    and the splitter thrown away.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._parts: list[Chunk] = []
        self.buffered_bytes = 0
        """Bytes of an incomplete frame held so far, its length included."""
        # Bytes that must be held before the next frame (or at least its length) is complete.
        self._needed = LENGTH_BYTES

    def set_frame_bytes_max(self, frame_bytes_max: int) -> None:
        """Take larger, or only smaller, frames from now on."""
        self._frame_bytes_max = frame_bytes_max

    @property
    def frame_bytes(self) -> int:
        """Size of the incomplete frame without its length; 0 if there is none, or not known."""
        return self._needed - LENGTH_BYTES

    @property
    def missing_bytes(self) -> int:
        """At least so many bytes come before the next frame is complete."""
        return self._needed - self.buffered_bytes

    def move_to(self, place: memoryview) -> int:
        """Move the bytes of the incomplete frame, without its length, to the beginning of `place`,
        and forget the frame; return how many there are."""
        parts = self._parts
        held = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))[LENGTH_BYTES:]
        place[: len(held)] = held
        self._parts = []
        self.buffered_bytes, self._needed = 0, LENGTH_BYTES
        return len(held)

    def is_whole(self, data: bytes) -> bool:
        """Whether bytes are one frame with its length, and nothing else."""
        size = len(data) - LENGTH_BYTES
        return 0 <= size <= self._frame_bytes_max and _LENGTH.unpack_from(data)[0] == size

    def feed(self, data: bytes) -> list[memoryview]:
        """Take received bytes and return the frames they complete, in order.

        Raises RemoteProtocolError when a length is negative or above the limit; frames that the
        same bytes completed before the bad length are lost with the connection.
        """
        if not self.buffered_bytes:
            return self._split(memoryview(data))
        if self._needed > GROWN_BYTES_MIN:
            return self._grow(data)
        self.buffered_bytes += len(data)
        if self.buffered_bytes < self._needed:
            self._keep(data)
            return []
        self._parts.append(data)
        data = b"".join(self._parts)
        self._parts = []
        return self._split(memoryview(data))

    def _grow(self, data: bytes) -> list[memoryview]:
        """Take more of a very large frame."""
        if len(self._parts) > 1 or not isinstance(self._parts[0], bytearray):
            self._parts = [bytearray().join(self._parts)]
        whole = self._parts[0]
        assert isinstance(whole, bytearray)
        missing = self._needed - self.buffered_bytes
        whole += data if len(data) <= missing else memoryview(data)[:missing]
        if len(data) < missing:
            self.buffered_bytes += len(data)
            return []
        self._parts = []
        frames = [memoryview(whole)[LENGTH_BYTES:]]
        return frames + self._split(memoryview(data[missing:]))

    def _keep(self, data: bytes) -> None:
        if len(data) >= _SMALL_BYTES:
            self._parts.append(data)
        elif isinstance(self._parts[-1], bytearray):
            self._parts[-1] += data
        else:
            self._parts.append(bytearray(data))

    def _split(self, view: memoryview) -> list[memoryview]:
        frames: list[memoryview] = []
        start, end = 0, len(view)
        needed = LENGTH_BYTES
        while end - start >= LENGTH_BYTES:
            length = _length_at(view, start, self._frame_bytes_max)
            needed = LENGTH_BYTES + length
            if end - start < needed:
                break
            frames.append(view[start + LENGTH_BYTES : start + needed])
            start += needed
            needed = LENGTH_BYTES
        self.buffered_bytes = held = end - start
        self._needed = needed
        if held:
            # Copied unless it is all that came: a view keeps the memory of the whole chunk.
            is_all = not start and held >= _SMALL_BYTES
            self._parts = [view if is_all else bytearray(view[start:])]
        return frames


class FrameReceiver:
    """Room for the next bytes, then complete frames out of what was written there.

    Frames beyond `SCRATCH_BYTES` are received in place. They may lie in a buffer that is used
    again when no view of it is left; smaller ones are copied. After `received` raised, as there.
    """

    SCRATCH_BYTES: Final = 64 << 10

    def __init__(self, frame_bytes_max: int, buffers: ReusedBuffers) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffers = buffers
        self._scratch = memoryview(bytearray(self.SCRATCH_BYTES))
        self._held = 0
        self._frame: memoryview | None = None
        """The large frame under way; `_held` bytes of it are there."""

    def room(self) -> memoryview:
        """Return where the next bytes belong, at least one: the end of a large frame, if one is
        under way, and nothing behind it."""
        return (self._scratch if self._frame is None else self._frame)[self._held :]

    def fresh(self, _count: int) -> memoryview | None:
        """Return None: what comes here is too large to be known at a glance."""
        return None

    def received(self, count: int) -> list[memoryview]:
        """Take notice of `count` bytes in `room`; return the frames they complete, in order.

        Raises RemoteProtocolError as `FrameSplitter.feed` does.
        """
        self._held += count
        if self._frame is None:
            return self._split()
        if self._held < len(self._frame):
            return []
        frame, self._frame, self._held = self._frame, None, 0
        return [frame]

    def _split(self) -> list[memoryview]:
        frames: list[memoryview] = []
        view, end, start = self._scratch, self._held, 0
        while end - start >= LENGTH_BYTES:
            length = _length_at(view, start, self._frame_bytes_max)
            body = start + LENGTH_BYTES
            if body + length <= end:
                frames.append(memoryview(bytes(view[body : body + length])))
                start = body + length
            elif LENGTH_BYTES + length > len(view):
                self._frame = self._buffers.take(length)
                self._held = end - body
                self._frame[: self._held] = view[body:end]
                return frames
            else:
                break
        self._held = end - start
        view[: self._held] = view[start:end]
        return frames


def _length_at(view: memoryview, start: int, frame_bytes_max: int) -> int:
    """Return the length of the frame that begins there. Raises RemoteProtocolError."""
    length: int = _LENGTH.unpack_from(view, start)[0]
    if not 0 <= length <= frame_bytes_max:
        if bytes(view[start : start + 2]) == _TLS_RECORD:
            raise RemoteProtocolError("no frame but TLS: the peer speaks TLS to a plain port")
        raise RemoteProtocolError(f"frame length {length} is outside 0..{frame_bytes_max}")
    return length
