"""Every codec undoes itself, within a bound."""

from __future__ import annotations

import random
import struct

import cramjam
import pytest

from client.errors import RemoteProtocolError
from client.wire.kafka.batches.records import Codec, cautious_bytes_max, compress, decompress

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


def blocks_of(frame: bytes) -> list[int]:
    """Walk an LZ4 frame as Kafka's Java client does: sizes of its blocks."""
    magic, flags, limits, _ = struct.unpack_from("<IBBB", frame)
    assert (magic, flags >> 6, limits >> 4) == (0x184D2204, 1, 4)  # version 1, 64 KiB
    assert flags & 0x20, "blocks depend on each other"
    assert not flags & 0x1F, "checksums, sizes or dictionaries"
    at, sizes = 7, []
    while True:
        (size,) = struct.unpack_from("<I", frame, at)
        at += 4
        if not size:
            assert at == len(frame)
            return sizes
        sizes.append(size & 0x7FFFFFFF)
        at += sizes[-1]


@pytest.mark.parametrize("level", [None, 1, 3, 9, 12, 17])
def test_lz4_is_what_javas_consumer_reads(level: int | None) -> None:
    """It takes no frame whose blocks depend on each other, as cramjam's do."""
    noise = random.Random(1).randbytes(70_000)
    for data, count in ((b"x", 1), (DATA, 2), (noise, 2), (noise[:65_536], 1)):
        frame = compress(Codec.LZ4, data, level)
        assert len(blocks_of(frame)) == count
        assert bytes(decompress(Codec.LZ4, frame, len(data))) == data
        assert len(frame) <= len(data) + 11 + 4 * count


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (1, 9)), (Codec.ZSTD, (-131_072, -1, 3, 22)), (Codec.SNAPPY, (5,))],
)
def test_levels_of_kafka_are_taken(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert bytes(decompress(codec, compress(codec, DATA, level), len(DATA))) == DATA
