"""What a member of the group writes down, and the check reads: every record, in order.

Covers the journal's layout. All integers are big endian:

    assigned   u8 = 0                                       the member got partitions
    record     u8 = 1, u32 partition, u64 offset, u32 line, u16 key size, u32 value size,
               key, value

A journal may end in the middle of an entry when its writer was killed; that entry is ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

ASSIGNED: Final = b"\x00"

_RECORD: Final = 1
_HEADER: Final = struct.Struct(">BIQIHI")


class Received(NamedTuple):
    """One record as a member received it."""

    partition: int
    offset: int
    line: int
    name: str
    value: bytes


def pack(partition: int, offset: int, line: int, key: bytes, value: bytes) -> bytes:
    """Return the bytes of one record entry."""
    return _HEADER.pack(_RECORD, partition, offset, line, len(key), len(value)) + key + value


def unpack(journal: bytes) -> Iterator[Received | None]:
    """Yield records in order, and None where the member got partitions."""
    position = 0
    while position < len(journal):
        if journal[position] != _RECORD:
            position += len(ASSIGNED)
            yield None
            continue
        key_start = position + _HEADER.size
        if key_start > len(journal):
            return
        _, partition, offset, line, key_size, value_size = _HEADER.unpack_from(journal, position)
        value_start = key_start + key_size
        position = value_start + value_size
        if position > len(journal):
            return
        name = journal[key_start:value_start].decode()
        yield Received(partition, offset, line, name, journal[value_start:position])
