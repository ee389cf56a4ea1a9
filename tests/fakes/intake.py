"""Bytes for a server, given to it as a socket would: what there is room for, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from client.wire.bookkeeper.connection import Call, decode_call
from client.wire.bookkeeper.messages import FRAME_BYTES_MAX
from client.wire.frames import FrameIntake, make_window

T = TypeVar("T")


class ServerConnection:
    """Requests arriving at a bookie, in both wire versions on one port."""

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.intake = FrameIntake(frame_bytes_max, make_window())

    def received(self, count: int) -> list[Call]:
        """Take notice of `count` bytes in the intake's room; return the requests they completed."""
        return [decode_call(frame) for frame in self.intake.received(count)]


def pour(into: FrameIntake, stream: bytes, most: int = 1 << 30) -> list[memoryview]:
    """Return the frames that come of bytes, at most `most` of them at a time."""
    return _pour(into, stream, most, into.received)


def serve(server: ServerConnection, stream: bytes) -> list[Call]:
    """Return the requests to a bookie that come of bytes."""
    return _pour(server.intake, stream, len(stream), server.received)


def _pour(
    into: FrameIntake, stream: bytes, most: int, received: Callable[[int], list[T]]
) -> list[T]:
    found: list[T] = []
    while stream:
        room = into.room()
        count = min(len(room), len(stream), most)
        assert count, "there is always room"
        room[:count] = stream[:count]
        found += received(count)
        stream = stream[count:]
    return found
