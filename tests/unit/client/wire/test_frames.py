"""Framing: whole and byte-by-byte feeding agree; lengths are checked before anything is kept."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import RemoteProtocolError
from client.wire.frames import FrameSplitter


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
