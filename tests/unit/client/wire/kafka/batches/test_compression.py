"""Every codec undoes itself, within a bound."""

from __future__ import annotations

import struct

import cramjam
import pytest

from client.errors import RemoteProtocolError
from client.wire.kafka.batches.compression import cautious_bytes_max, compress, decompress
from client.wire.kafka.batches.records import Codec

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
DATA = b"what goes in comes out " * 5000


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=["nothing", "a byte", "much"])
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data) or 1)) == data


@pytest.mark.parametrize("codec", PACKED)
def test_no_more_than_what_is_allowed(codec: Codec) -> None:
    with pytest.raises(RemoteProtocolError):
        decompress(codec, compress(codec, DATA), len(DATA) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_damage_is_the_peers_mistake(codec: Codec) -> None:
    with pytest.raises(RemoteProtocolError):
        decompress(codec, b"\xff" * 40, 1 << 20)


def xerial(*blocks: bytes) -> bytes:
    head = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def test_xerials_framing_of_snappy_is_read() -> None:
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (b"one ", b"two")]
    assert bytes(decompress(Codec.SNAPPY, xerial(*blocks), 7)) == b"one two"
    with pytest.raises(RemoteProtocolError):
        decompress(Codec.SNAPPY, xerial(*blocks), 6)
    with pytest.raises(RemoteProtocolError, match="truncated"):
        decompress(Codec.SNAPPY, xerial(*blocks) + b"\0", 1 << 20)
    with pytest.raises(RemoteProtocolError, match="are left"):
        decompress(Codec.SNAPPY, xerial(*blocks)[:-1], 1 << 20)


def test_a_server_inflates_a_hundredfold_within_bounds() -> None:
    assert cautious_bytes_max(1) == 1 << 20
    assert cautious_bytes_max(100_000) == 10_000_000
    assert cautious_bytes_max(1 << 30) == 16 << 20
