"""The snapshot entry: what a new leader, or a search, needs to know of everything before it.

This file is the only home of the snapshot body. A ledger begins with a snapshot and gets
another one every few megabytes or dozens of entries, so whoever opens it reads back a short tail:
the last snapshot, and the headers after it. Body, version 1:

    version i16, max_timestamp i64 of this ledger so far,
    point count i32, points (offset i64, entry id i64, max_timestamp_before i64) of the
    snapshots of this ledger before this one, without those close to the one before; producer state

Open transactions will come with version 2. An unknown version is refused, never guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.core.entry_format import SNAPSHOT_TYPE, open_internal, seal_internal
from broker.core.offset_index import IndexPoint
from broker.core.producer_state import ProducerState
from broker.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, Offset
from client.wire.kafka.records import Buffer

SNAPSHOT_VERSION: Final = 1

_HEAD: Final = struct.Struct(">hqi")
_POINT: Final = struct.Struct(">qqq")


class Snapshot(NamedTuple):
    """An opened snapshot; `producers` is still encoded."""

    log_end_offset: Offset
    leader_epoch: LeaderEpoch
    max_timestamp_ms: int
    points: tuple[IndexPoint, ...]
    producers: memoryview


def seal_snapshot(
    log_end_offset: Offset,
    leader_epoch: LeaderEpoch,
    max_timestamp_ms: int,
    points: Sequence[IndexPoint],
    producers: ProducerState,
) -> bytes:
    """Return the bytes of a snapshot entry."""
    head = _HEAD.pack(SNAPSHOT_VERSION, max_timestamp_ms, len(points))
    body = b"".join([head, *(_POINT.pack(*point) for point in points), producers.encode()])
    return seal_internal(log_end_offset, leader_epoch, SNAPSHOT_TYPE, body)


def open_snapshot(payload: Buffer) -> Snapshot:
    """Verify and open a snapshot entry. Raises LogCorrupt, also for versions of the future."""
    entry = open_internal(payload)
    if entry.type != SNAPSHOT_TYPE:
        raise LogCorrupt(f"internal entry of unknown type {entry.type}")
    try:
        version, max_timestamp_ms, count = _HEAD.unpack_from(entry.body)
        if version != SNAPSHOT_VERSION:
            raise LogCorrupt(f"snapshot of version {version}, this broker reads {SNAPSHOT_VERSION}")
        points = tuple(
            IndexPoint(Offset(offset), EntryId(entry_id), before)
            for offset, entry_id, before in (
                _POINT.unpack_from(entry.body, _HEAD.size + number * _POINT.size)
                for number in range(count)
            )
        )
    except struct.error as error:
        raise LogCorrupt(f"snapshot of {len(entry.body)} bytes is truncated") from error
    return Snapshot(
        entry.log_end_offset,
        entry.leader_epoch,
        max_timestamp_ms,
        points,
        entry.body[_HEAD.size + count * _POINT.size :],
    )
