"""What a reader from outside must know of a ledger entry: where it stands, whether it is records.

This file is the data source's only home of the entry format (`broker/core/entry_format.py` and
`snapshot.py` write it; a test holds them together). An entry holds whole record batches or is
internal; both begin with the offset at which they stand, so entries can be searched by it. An
internal snapshot lists those before it in the same ledger: a coarse index for free.
"""

from __future__ import annotations

import struct
from typing import Final

from client.errors import RemoteProtocolError
from client.wire.kafka.records import Buffer, headers, peek_base_offset

_MAGIC_POSITION: Final = 16
_INTERNAL_MAGIC: Final = 0x51
_SNAPSHOT_TYPE: Final = 1
_SNAPSHOT_VERSIONS: Final = (1,)
"""Those whose list of places is where we know it; in others it is not looked for."""

_SNAPSHOT: Final = struct.Struct(">21xbhqi")
_POINT: Final = struct.Struct(">qqq")


def is_internal(payload: Buffer) -> bool:
    """Whether the entry holds no records."""
    return len(payload) > _MAGIC_POSITION and payload[_MAGIC_POSITION] == _INTERNAL_MAGIC


def first_offset(payload: Buffer) -> int:
    """Return the offset at which the entry stands. Raises RemoteProtocolError."""
    return peek_base_offset(payload)


def next_offset(payload: Buffer) -> int:
    """Return the offset after the entry. Raises RemoteProtocolError."""
    if is_internal(payload):
        return first_offset(payload)
    found = [header for _at, header in headers(payload)]
    if not found:
        raise RemoteProtocolError("empty entry")
    return found[-1].next_offset


def has_transactions(payload: Buffer) -> bool:
    """Whether a batch of the entry belongs to a transaction. Raises RemoteProtocolError."""
    return any(header.is_transactional for _at, header in headers(payload))


def snapshot_points(payload: Buffer) -> list[tuple[int, int]]:
    """Return (offset, entry) of the snapshots before this one; none if it is no snapshot."""
    if not is_internal(payload) or len(payload) < _SNAPSHOT.size:
        return []
    kind, version, _newest, count = _SNAPSHOT.unpack_from(payload)
    if kind != _SNAPSHOT_TYPE or version not in _SNAPSHOT_VERSIONS:
        return []
    if not 0 <= count * _POINT.size <= len(payload) - _SNAPSHOT.size:
        return []
    points = _POINT.iter_unpack(
        memoryview(payload)[_SNAPSHOT.size : _SNAPSHOT.size + count * _POINT.size]
    )
    return [(offset, entry_id) for offset, entry_id, _before in points]
