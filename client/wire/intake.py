"""Where the bytes go that servers receive, and bookies' answers, before they are frames.

Small frames come many at a time: they are read into one window that all connections share, and a
copy of what came is split (`frames.py`). A large frame gets a place of its own as soon as its
length is known, and the rest of it is read into that: not one of those bytes is copied, where
splitting would join them, which is a second copy of a stream of large frames. Behind a large frame
only a glance is read, enough for the next length.

A place is memory for bytes that did not come yet, so it has to be earned: by an eighth of the
frame, or by a frame half as large on the same connection just before. Frames beyond
`PLACE_BYTES_MAX` have none. Servers count places with what they hold
(`client/node/connection_limits.py`).
"""

from __future__ import annotations

from typing import Final

from client.wire.frames import LENGTH_BYTES, FrameSplitter

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
