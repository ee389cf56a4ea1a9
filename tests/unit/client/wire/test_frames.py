"""Framing: whole and byte-by-byte feeding agree; lengths are checked before anything is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import RemoteProtocolError
from client.wire.frames import GROWN_BYTES_MIN, FrameReceiver, FrameSplitter, ReusedBuffers


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed_in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    splitter = FrameSplitter(1000)
    edges = [0, *sorted(cuts), len(data)]
    frames: list[bytes] = []
    for start, end in pairwise(edges):
        frames += [bytes(view) for view in splitter.feed(data[start:end])]
    return frames


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_any_split_of_the_stream_gives_the_same_frames(bodies: list[bytes], data) -> None:
    stream = b"".join(map(frame, bodies))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert feed_in_pieces(stream, cuts) == bodies


def test_an_unfinished_frame_does_not_keep_the_memory_of_those_before_it() -> None:
    splitter = FrameSplitter(100_000)
    chunk = frame(bytes(90_000)) + frame(bytes(50_000))[:10_000]
    references = sys.getrefcount(chunk)
    assert [len(view) for view in splitter.feed(chunk)] == [90_000]
    assert splitter.buffered_bytes == 10_000
    assert sys.getrefcount(chunk) == references


def test_byte_by_byte() -> None:
    stream = frame(b"one") + frame(b"") + frame(b"three")
    assert feed_in_pieces(stream, list(range(len(stream)))) == [b"one", b"", b"three"]


def test_frame_inside_one_chunk_is_a_view_of_it() -> None:
    chunk = frame(b"payload")
    [view] = FrameSplitter(100).feed(chunk)
    assert view.obj is chunk


def test_incomplete_frame_is_counted_as_buffered() -> None:
    splitter = FrameSplitter(100)
    assert splitter.feed(frame(b"payload")[:6]) == []
    assert splitter.buffered_bytes == 6
    [view] = splitter.feed(frame(b"payload")[6:])
    assert view == b"payload"
    assert splitter.buffered_bytes == 0


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_bad_length_is_refused_before_its_body_arrives(length: int) -> None:
    splitter = FrameSplitter(100)
    header = length.to_bytes(4, "big", signed=True)
    splitter.feed(header[:3])
    with pytest.raises(RemoteProtocolError, match=str(length)):
        splitter.feed(header[3:])


def test_frame_of_exactly_the_limit_is_accepted() -> None:
    [view] = FrameSplitter(100).feed(frame(bytes(100)))
    assert len(view) == 100


SCRATCH = FrameReceiver.SCRATCH_BYTES
LENGTHS = [0, 1, 4, 1000, SCRATCH - 5, SCRATCH - 4, SCRATCH - 3, SCRATCH, 3 * SCRATCH]


def receive_in_pieces(data: bytes, sizes: Iterator[int]) -> list[bytes]:
    """Write a stream where the receiver wants it, `sizes` bytes at a time."""
    receiver = FrameReceiver(4 * SCRATCH, ReusedBuffers(2))
    frames: list[bytes] = []
    at = 0
    while at < len(data):
        room = receiver.room()
        assert len(room)
        count = min(next(sizes), len(room), len(data) - at)
        room[:count] = data[at : at + count]
        at += count
        frames += [bytes(view) for view in receiver.received(count)]
    return frames


@given(
    st.lists(
        st.sampled_from(
            [0, 1, 4, 1000, SCRATCH - 5, SCRATCH - 4, SCRATCH - 3, SCRATCH, SCRATCH * 3]
        ),
        max_size=8,
    ),
    st.lists(st.sampled_from([1, 3, 5, 1000, SCRATCH, 10 * SCRATCH]), min_size=1, max_size=8),
)
def test_frames_of_any_size_are_received_in_place(lengths: list[int], sizes: list[int]) -> None:
    bodies = [bytes([number + 1]) * length for number, length in enumerate(lengths)]
    stream = b"".join(map(frame, bodies))
    # Small pieces at first; then large ones, so that a long stream ends.
    pieces = chain(sizes, repeat(10 * SCRATCH))
    assert receive_in_pieces(stream, pieces) == bodies


def test_a_receiver_stays_within_its_limit() -> None:
    receiver = FrameReceiver(100, ReusedBuffers(1))
    receiver.room()[:4] = (101).to_bytes(4, "big")
    with pytest.raises(RemoteProtocolError, match="101"):
        receiver.received(4)


def test_a_large_frame_that_is_still_viewed_is_not_written_to() -> None:
    receiver = FrameReceiver(4 * SCRATCH, ReusedBuffers(4))
    kept = []
    for number in range(6):
        stream = frame(bytes([number]) * (2 * SCRATCH))
        frames: list[memoryview] = []
        while not frames:
            room = receiver.room()
            count = min(len(room), len(stream))
            room[:count], stream = stream[:count], stream[count:]
            frames = receiver.received(count)
        kept.append(frames[0][5:9])  # a view of a view, as entries are
    assert [bytes(view) for view in kept] == [bytes([number]) * 4 for number in range(6)]


LARGE = GROWN_BYTES_MIN + 3


@given(st.sampled_from([1, 3, 4, 5, 70_000, 1 << 20, 9 << 20]), st.sampled_from([262_144, 700_001]))
def test_very_large_frames_are_what_was_sent(first: int, size: int) -> None:
    bodies = [b"small", bytes(range(250)) * (LARGE // 250 + 1), b"", b"x" * LARGE, b"y" * 5_000]
    stream = b"".join(map(frame, bodies))
    splitter = FrameSplitter(8 << 20)
    frames = splitter.feed(stream[:first])
    for at in range(first, len(stream), size):
        frames += splitter.feed(stream[at : at + size])
        assert splitter.buffered_bytes < 4 + len(bodies[1])
    assert [bytes(view) for view in frames] == bodies
    assert splitter.buffered_bytes == 0


def test_a_very_large_frame_is_not_joined_at_its_end() -> None:
    """Its bytes are where they stay: nothing of the length of the frame is done with the last."""
    splitter = FrameSplitter(8 << 20)
    stream = frame(bytes(LARGE)) + frame(b"next")[:6]
    for at in range(0, len(stream) - 100, 65_536):
        assert splitter.feed(stream[at : min(at + 65_536, len(stream) - 100)]) == []
    (whole,) = splitter._parts
    [view] = splitter.feed(stream[-100:])
    assert view.obj is whole
    assert len(view) == LARGE
    assert splitter.buffered_bytes == 6
