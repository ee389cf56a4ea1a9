"""The four compression codecs of record batches, with a bound on what they may expand to.

This file is the only importer of cramjam. Decompression writes into a buffer whose size never
exceeds `size_max`, so a few kilobytes from a hostile producer cannot fill the memory. A server
bounds it by `cautious_bytes_max`, because it opens many batches of a request on the loop that
serves everybody. Snappy has two forms on the wire: raw blocks (librdkafka, most clients) and
xerial's framing (Java).
"""

from __future__ import annotations

import struct
from typing import Final

import cramjam

from client.errors import RemoteProtocolError
from client.wire.kafka.batches.records import Buffer, Codec

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_BLOCK: Final = struct.Struct(">i")
_FIRST_GUESS_BYTES: Final = 64 * 1024
_GROWTH: Final = 8
_NO_ROOM: Final = "failed to write whole buffer"
"""What cramjam says when the output does not fit; anything else is damage, and no buffer helps."""
_SNAPPY_RATIO_MAX: Final = 22
"""Three bytes of a block stand for 64 at most: a block that claims more lies."""

_CAUTIOUS_BYTES: Final = 1 << 20, 16 << 20
_CAUTIOUS_RATIO: Final = 100


def cautious_bytes_max(compressed_size: int) -> int:
    """Return what a server inflates a batch to at most: a hundredfold, 16 MiB, never < 1 MiB.

    A thousand tiny batches in one request must not cost what a thousand large ones would.
    """
    least, most = _CAUTIOUS_BYTES
    return min(most, max(least, _CAUTIOUS_RATIO * compressed_size))


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress the records of a batch; NONE returns them as they are."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec is Codec.LZ4:
        return bytes(cramjam.lz4.compress(data))
    return bytes(cramjam.zstd.compress(data))


def decompress(codec: Codec, data: Buffer, size_max: int) -> Buffer:
    """Undo `compress`. Raises RemoteProtocolError for damaged data and beyond `size_max` bytes."""
    if codec is Codec.NONE:
        return data
    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(data, size_max)
        return _decompress_stream(codec, data, size_max)
    except cramjam.DecompressionError as error:
        raise RemoteProtocolError(
            f"damaged {codec.name} records, or more than {size_max} bytes of them: {error}"
        ) from error


def _decompress_stream(codec: Codec, data: Buffer, size_max: int) -> Buffer:
    """Try growing output buffers: the formats do not always say how large the content is."""
    module = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec]
    size = min(size_max, max(_FIRST_GUESS_BYTES, _GROWTH * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = module.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if size >= size_max or _NO_ROOM not in str(error):
                raise
            size = min(size_max, size * _GROWTH)
            continue
        return memoryview(output)[:written]


def _decompress_snappy(data: Buffer, size_max: int) -> Buffer:
    if len(data) < _XERIAL_HEADER.size or bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, size_max)
    view = memoryview(data)
    output = bytearray()
    at = _XERIAL_HEADER.size
    while at < len(view):
        try:
            (size,) = _XERIAL_BLOCK.unpack_from(view, at)
        except struct.error:
            raise RemoteProtocolError("truncated snappy frame") from None
        at += _XERIAL_BLOCK.size
        if size <= 0 or at + size > len(view):
            raise RemoteProtocolError(f"snappy block of {size} bytes, {len(view) - at} are left")
        output += _decompress_snappy_block(view[at : at + size], size_max - len(output))
        at += size
    return output


def _decompress_snappy_block(data: Buffer, size_max: int) -> Buffer:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > min(size_max, _SNAPPY_RATIO_MAX * len(data)):
        raise RemoteProtocolError(
            f"snappy block of {size} bytes in {len(data)}; at most {size_max} are allowed"
        )
    return bytes(cramjam.snappy.decompress_raw(data))
