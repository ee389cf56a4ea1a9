"""Splitting a byte stream into frames: a 4-byte big-endian length, then that many bytes.

Covers framing; Kafka and BookKeeper share it, on servers and clients. The length is checked as
soon as its four bytes are there, before anything is kept for it, so a peer can make us hold at
most one frame of the agreed size. A frame that lies within one received chunk is handed out as a
view of that chunk, without a copy; a frame spread over several chunks is joined once. What is held
costs what was received: the end of a chunk is copied, and small pieces are copied together, so that
a frame that comes in crumbs is not a list of crumbs, and a crumb does not keep its chunk alive. A
very large frame grows in one piece: to join it at its end would hold up everybody else for as long
as that takes, some 50 ms for 100 MB.

Receivers of frames of megabytes say where the bytes go before they are read from the socket, which
saves two copies of all of them. Servers, and clients of bookies, do it by `FrameIntake`: small
frames come many at a time and are read into one window that all connections share, and a copy of
what came is split. A large frame gets a place of its own as soon as its length is known, and the
rest of it is read into that. Behind a large frame only a few bytes are read, enough for the next
length.

A place is memory for bytes that did not come yet, so it has to be earned: by an eighth of the
frame, or by a frame half as large on the same connection just before. Frames beyond
`PLACE_BYTES_MAX` have none. Servers count places with what they hold
(`client/node/connection_limits.py`).

Clients that read large answers use `FrameReceiver`, whose `ReusedBuffers` are written to again when
nobody has a view of them any more. A bytearray knows that by itself, for it refuses to be resized
as long as it is viewed; so no reader has to give anything back. Fresh memory is dear because its
pages are: the kernel clears each one at its first touch, which costs more than copying into a page
that is there.
"""

from __future__ import annotations

import struct
from typing import Final

from client.errors import RemoteProtocolError

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


WINDOW_BYTES: Final = 256 << 10
PLACE_BYTES_MIN: Final = 64 << 10
"""Below, reading a frame by itself would cost more system calls than it saves copies."""
PLACE_BYTES_MAX: Final = 4 << 20
_GLANCE_BYTES: Final = 64
_EARNED_BY: Final = 8
_GROWTH_MAX: Final = 2


def make_window() -> memoryview:
    """Return the window that all connections of one event loop share.

    Whoever writes to `FrameIntake.room` says so before anybody asks for room again.
    """
    return memoryview(bytearray(WINDOW_BYTES))


class FrameIntake:
    """Room for the next bytes, then the frames (without their length) that they complete.

    Frames are views; nothing is written to them again. After `received` raised, the connection
    must be closed and this be thrown away.
    """

    __slots__ = ("_filled", "_last_bytes", "_place", "_splitter", "_window", "_window_bytes")

    def __init__(self, frame_bytes_max: int, window: memoryview) -> None:
        self._splitter = FrameSplitter(frame_bytes_max)
        self._window = window
        self._window_bytes = len(window)
        self._place: memoryview | None = None
        """Of the large frame under way; its first `_filled` bytes are there."""
        self._filled = 0
        self._last_bytes = 0
        """Size of the last frame, if it had a place."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of a frame that is not complete, its length included."""
        if self._place is not None:
            return LENGTH_BYTES + self._filled
        return self._splitter.buffered_bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes of memory kept for what did not come yet."""
        return 0 if self._place is None else len(self._place) - self._filled

    @property
    def missing_bytes(self) -> int:
        """At least so many bytes come before the next frame is complete."""
        if self._place is not None:
            return len(self._place) - self._filled
        return self._splitter.missing_bytes

    def set_frame_bytes_max(self, frame_bytes_max: int) -> None:
        """Take larger, or only smaller, frames from now on."""
        self._splitter.set_frame_bytes_max(frame_bytes_max)

    def room(self) -> memoryview:
        """Return where the next bytes belong: at least one, and nothing behind them."""
        if self._place is not None:
            return self._place[self._filled :]
        window, window_bytes = self._window, self._window_bytes
        return window if window_bytes == len(window) else window[:window_bytes]

    def fresh(self, count: int) -> memoryview | None:
        """Return the `count` bytes that came if they begin with a frame, for somebody who knows
        all of them at a glance; None: ask `received`. Either is called, or both in this order."""
        if self._place is not None or self._splitter.buffered_bytes or self._last_bytes:
            return None
        return self._window[:count]

    def received(self, count: int) -> list[memoryview]:
        """Take notice of `count` bytes in `room`; return the frames they complete, in order.

        Raises RemoteProtocolError as `FrameSplitter.feed` does.
        """
        if self._place is not None:
            return self._fill(self._place, count)
        data = bytes(self._window[:count])
        splitter = self._splitter
        if not splitter.buffered_bytes and splitter.is_whole(data):
            self._last_bytes = 0
            self._window_bytes = len(self._window)
            return [memoryview(data)[LENGTH_BYTES:]]  # nearly always: one frame, and all of it
        return self._split(data)

    def _fill(self, place: memoryview, count: int) -> list[memoryview]:
        self._filled += count
        if self._filled < len(place):
            return []
        self._place = None
        self._last_bytes = len(place)
        self._window_bytes = _GLANCE_BYTES
        return [place]

    def _split(self, data: bytes) -> list[memoryview]:
        splitter = self._splitter
        frames = splitter.feed(data)
        if frames:
            self._last_bytes = 0
        self._window_bytes = len(self._window)
        size = splitter.frame_bytes
        if PLACE_BYTES_MIN <= size <= PLACE_BYTES_MAX and (
            splitter.buffered_bytes * _EARNED_BY >= size or size <= self._last_bytes * _GROWTH_MAX
        ):
            self._place = memoryview(bytearray(size))
            self._filled = splitter.move_to(self._place)
        return frames
