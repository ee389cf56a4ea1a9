"""Which partition a key belongs to, as Kafka's default partitioner says.

Brokers need it where they publish for somebody who has no Kafka client. All clients agree on it,
so records with one key meet in one partition whoever published them. Source: Kafka's Utils.murmur2
(MurmurHash2, 32 bit, with the seed that Kafka chose) and its DefaultPartitioner.
"""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return MurmurHash2 of the bytes, unsigned."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length - length % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        value = value * _M & _MASK ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
