"""Small buffers share a TLS record, large ones are taken in pieces; no byte is lost or moved."""

from __future__ import annotations

import random

import pytest

from client.wire.tls_records import JOINED_BYTES_MAX, PIECE_BYTES_MAX, pieces


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
