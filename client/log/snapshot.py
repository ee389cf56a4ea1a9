"""The snapshot entry: what a new leader, or a search, needs to know of everything before it.

A ledger begins with a snapshot and gets another one every few megabytes or dozens of entries, so
whoever opens it reads back a short tail: the last snapshot, and the headers after it. A search
finds in the last snapshot where the earlier ones are: a coarse index for free. Body, version 1:

    version i16, max_timestamp i64 of this ledger so far,
    point count i32, points (offset i64, entry id i64, max_timestamp_before i64) of the
    snapshots of this ledger before this one, without those close to the one before; the state of
    idempotent producers, which is the leader's to encode

Open transactions will come with version 2. An unknown version is refused, never guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, Offset
from client.log.entry_format import SNAPSHOT_TYPE, is_internal, open_internal, seal_internal
from client.wire.kafka.batches.records import Buffer

SNAPSHOT_VERSION: Final = 1

_HEAD: Final = struct.Struct(">hqi")
_POINT: Final = struct.Struct(">qqq")


class IndexPoint(NamedTuple):
    """A known place in a ledger."""

    offset: Offset
    entry_id: EntryId
    max_timestamp_before: int
    """Largest timestamp of all entries before it in this ledger; -1: none."""


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
    producers: bytes,
) -> bytes:
    """Return the bytes of a snapshot entry."""
    head = _HEAD.pack(SNAPSHOT_VERSION, max_timestamp_ms, len(points))
    body = b"".join([head, *(_POINT.pack(*point) for point in points), producers])
    return seal_internal(log_end_offset, leader_epoch, SNAPSHOT_TYPE, body)


def open_snapshot(payload: Buffer) -> Snapshot:
    """Verify and open a snapshot entry. Raises LogCorrupt, also for versions of the future."""
    entry = open_internal(payload)
    if entry.type != SNAPSHOT_TYPE:
        raise LogCorrupt(f"internal entry of unknown type {entry.type}")
    if len(entry.body) < _HEAD.size:
        raise LogCorrupt(f"snapshot of {len(entry.body)} bytes is truncated")
    version, max_timestamp_ms, count = _HEAD.unpack_from(entry.body)
    if version != SNAPSHOT_VERSION:
        raise LogCorrupt(f"snapshot of version {version}, only {SNAPSHOT_VERSION} is known")
    producers_at = _HEAD.size + count * _POINT.size
    if not _HEAD.size <= producers_at <= len(entry.body):
        raise LogCorrupt(f"snapshot of {len(entry.body)} bytes cannot list {count} places")
    points = tuple(
        IndexPoint(Offset(offset), EntryId(entry_id), before)
        for offset, entry_id, before in _POINT.iter_unpack(entry.body[_HEAD.size : producers_at])
    )
    return Snapshot(
        entry.log_end_offset,
        entry.leader_epoch,
        max_timestamp_ms,
        points,
        entry.body[producers_at:],
    )


def snapshot_points(payload: Buffer) -> tuple[IndexPoint, ...]:
    """Return the places that an entry lists; none if it is no snapshot that can be read.

    For searches, which do without: a version of the future may list them elsewhere.
    """
    if not is_internal(payload):
        return ()
    try:
        return open_snapshot(payload).points
    except LogCorrupt:
        return ()
