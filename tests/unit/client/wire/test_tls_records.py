"""Small buffers share a TLS record, large ones are taken in pieces; no byte is lost or moved.
Where whole records end is known however the stream of them is cut."""

from __future__ import annotations

import random

import pytest

from client.wire.tls_records import (
    JOINED_BYTES_MAX,
    PIECE_BYTES_MAX,
    RECORD_BYTES_MAX,
    RecordEdge,
    pieces,
)


def test_small_buffers_are_joined() -> None:
    buffers = [b"a" * 100, memoryview(b"b" * 200), bytearray(b"c" * 300)]
    assert list(pieces(buffers)) == [b"a" * 100 + b"b" * 200 + b"c" * 300]
    many = list(pieces([b"x" * 1_000] * 200))
    assert [len(piece) for piece in many] == [66_000] * 3 + [2_000]


def test_one_buffer_is_not_copied() -> None:
    small, large = b"s" * 10, b"l" * JOINED_BYTES_MAX
    assert next(iter(pieces([small]))) is small
    assert next(iter(pieces([large]))) is large


def test_what_is_small_leaves_before_the_large_one_behind_it() -> None:
    large = b"l" * JOINED_BYTES_MAX
    assert list(pieces([b"head", large, b"tail", b""])) == [b"head", large, b"tail"]


def test_large_buffers_are_views_of_pieces() -> None:
    found = list(pieces([bytes(2 * PIECE_BYTES_MAX + 5)]))
    assert [len(piece) for piece in found] == [PIECE_BYTES_MAX, PIECE_BYTES_MAX, 5]
    assert all(type(piece) is memoryview for piece in found)


def test_nothing_is_no_piece() -> None:
    assert list(pieces([])) == list(pieces([b"", b""])) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_bytes_stay_the_same(seed: int) -> None:
    rng = random.Random(seed)
    sizes = (0, 1, 90, JOINED_BYTES_MAX - 1, JOINED_BYTES_MAX, PIECE_BYTES_MAX + 1)
    buffers = [rng.randbytes(rng.choice(sizes)) for _ in range(rng.randint(0, 12))]
    found = list(pieces(buffers))
    assert b"".join(found) == b"".join(buffers)
    assert all(0 < len(piece) <= PIECE_BYTES_MAX for piece in found)


def record(size: int, kind: int = 23) -> bytes:
    return bytes((kind, 3, 3)) + size.to_bytes(2, "big") + b"\x17" * size


def partial_bytes_after(*cuts: bytes) -> int:
    edge = RecordEdge()
    for data in cuts:
        edge.take(memoryview(data))
    return edge.partial_bytes


@pytest.mark.parametrize("seed", range(40))
def test_the_rest_behind_the_last_whole_record_is_known(seed: int) -> None:
    rng = random.Random(seed)
    stream, ends = b"", [0]
    for _ in range(rng.randint(1, 30)):
        stream += record(rng.choice((0, 1, 26, 1_041, 16_401, RECORD_BYTES_MAX)))
        ends.append(len(stream))
    edge, at = RecordEdge(), 0
    while at < len(stream):
        data = memoryview(stream)[at : at + rng.choice((0, 1, 2, 5, 6, 1_046, 16_384, 60_000))]
        edge.take(data)
        at += len(data)
        assert edge.partial_bytes == at - max(end for end in ends if end <= at)
    assert edge.partial_bytes == 0


@pytest.mark.parametrize(
    "head",
    [
        b"\x17\x03\x03" + (RECORD_BYTES_MAX + 1).to_bytes(2, "big"),
        b"\x17\x02\x03\x10\x00",
        b"\x47\x03\x03\x10\x00",
        b"POST ",
    ],
)
def test_what_is_no_record_is_not_waited_for(head: bytes) -> None:
    assert partial_bytes_after(record(100) + head) == 0
    assert partial_bytes_after(record(100) + head + bytes(50)) == 0
    assert partial_bytes_after(record(100), head[:2], head[2:], bytes(9), bytes(9)) == 0


def test_every_kind_of_record_is_waited_for() -> None:
    for kind in (20, 21, 22, 23):
        assert partial_bytes_after(record(100, kind)[:60]) == 60
