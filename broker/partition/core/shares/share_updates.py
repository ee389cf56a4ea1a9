"""What the log of a partition says of its share groups, byte for byte.

A change of a group's state is in an internal entry of type 3, several of them if they came
together:

    version i16 = 1 or 2, count i32, updates:
    group i16 length + UTF-8, incarnation 16 bytes, epoch i32,
    start i64 (-1: the group is gone),
    count i32, ranges: first i64, last i64, state i8, deliveries i16 (ARCHIVING: negative if a
    client has rejected the record),
    with version 2: count i32, waits: first i64, last i64, free at i64 (ms since 1970)

A snapshot has all groups of the partition in the same form, each as one update of everything. The
incarnation tells a group from an earlier one of its name, the epoch grows when an operator lets it
begin elsewhere: an update of another one than the last replaces all there was. States are Kafka's;
what somebody holds is AVAILABLE, with its count: a takeover knows of no holders.

Releases before `share.version` 2 read neither ARCHIVING nor version 2, which is written only if a
record waits for its time.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, Offset
from client.log.entry_format import SHARE_TYPE, open_internal, seal_internal
from client.wire.kafka.batches.records import Buffer

SHARE_VERSION: Final = 1
_TIMED_VERSION: Final = 2
GONE: Final = Offset(-1)
"""The start of a group that is no more."""

_HEAD: Final = struct.Struct(">hi")
_NAME: Final = struct.Struct(">h")
_STATE: Final = struct.Struct(">iqi")
_RANGE: Final = struct.Struct(">qqbh")
_COUNT: Final = struct.Struct(">i")
_WAIT: Final = struct.Struct(">qqq")
_UUID_BYTES: Final = 16
COUNT_MAX: Final = 0x7FFF


class RecordState(enum.IntEnum):
    """Kafka's numbers, and some of our own, which are in memory only."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """ARCHIVED as soon as its dead letter is durable."""
    ARCHIVED = 4
    RELEASED = 100
    """AVAILABLE as soon as that is durable."""
    DYING = 101
    """ARCHIVING as soon as that is durable."""
    DELAYED = 102
    """AVAILABLE as soon as its time has come."""


SETTLED: Final = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
_STORED: Final = (RecordState.AVAILABLE, RecordState.ARCHIVING, *SETTLED)


class StoredRange(NamedTuple):
    """Records of one state, both ends included."""

    first: Offset
    last: Offset
    state: RecordState
    deliveries: int


class Wait(NamedTuple):
    """AVAILABLE records that are not lent before their time, both ends included."""

    first: Offset
    last: Offset
    free_at_ms: int


class ShareUpdate(NamedTuple):
    """What has become of some records of a group, and where those begin that may not be settled."""

    group_id: str
    incarnation: UUID
    epoch: int
    start: Offset
    ranges: Sequence[StoredRange] = ()
    waits: Sequence[Wait] = ()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        rows = len(self.ranges) * _RANGE.size + len(self.waits) * _WAIT.size
        return _UUID_BYTES + _STATE.size + len(self.group_id) + rows


def seal_updates(updates: Iterable[ShareUpdate], end: Offset, epoch: LeaderEpoch) -> bytes:
    """Return the bytes of an entry; `end`: of the log."""
    return seal_internal(end, epoch, SHARE_TYPE, encode_updates(updates))


def open_updates(payload: Buffer) -> list[ShareUpdate]:
    """Verify and open an entry. Raises LogCorrupt."""
    return decode_updates(open_internal(payload).body)


def encode_updates(updates: Iterable[ShareUpdate]) -> bytes:
    """Return the body of an entry, or a snapshot's part."""
    known = list(updates)
    is_timed = any(one.waits for one in known)
    parts = [_encode(one, is_timed=is_timed) for one in known]
    version = _TIMED_VERSION if is_timed else SHARE_VERSION
    return b"".join((_HEAD.pack(version, len(parts)), *parts))


def _encode(one: ShareUpdate, *, is_timed: bool) -> bytes:
    name = one.group_id.encode()
    head = (_NAME.pack(len(name)), name, one.incarnation.bytes)
    state = _STATE.pack(one.epoch, one.start, len(one.ranges))
    waits = [_COUNT.pack(len(one.waits)), *(_WAIT.pack(*each) for each in one.waits)]
    ranges = (_RANGE.pack(*each) for each in one.ranges)
    return b"".join((*head, state, *ranges, *(waits if is_timed else ())))


def decode_updates(body: memoryview) -> list[ShareUpdate]:
    """Do the reverse. Raises LogCorrupt, also for versions of the future."""
    try:
        version, count = _HEAD.unpack_from(body)
        if version not in (SHARE_VERSION, _TIMED_VERSION):
            raise LogCorrupt(f"share state of version {version}: it was written by a newer broker")
        at = _HEAD.size
        found = []
        for _ in range(count):
            (length,) = _NAME.unpack_from(body, at)
            at += _NAME.size
            name = str(body[at : at + length], "utf-8")
            at += length
            incarnation = UUID(bytes=bytes(body[at : at + _UUID_BYTES]))
            at += _UUID_BYTES
            epoch, start, ranges = _STATE.unpack_from(body, at)
            at += _STATE.size
            end = at + ranges * _RANGE.size
            if ranges < 0 or end > len(body):
                raise LogCorrupt(f"share state of {len(body)} bytes cannot list {ranges} ranges")
            rows = [_range(*row) for row in _RANGE.iter_unpack(body[at:end])]
            at = end
            waits: Sequence[Wait] = ()
            if version == _TIMED_VERSION:
                at, waits = _read_waits(body, at)
            found.append(ShareUpdate(name, incarnation, epoch, Offset(start), rows, waits))
    except (struct.error, ValueError) as error:
        raise LogCorrupt(f"share state of {len(body)} bytes: {error}") from error
    if at != len(body):
        raise LogCorrupt(f"{len(body) - at} bytes follow the share state")
    return found


def _read_waits(body: memoryview, at: int) -> tuple[int, Sequence[Wait]]:
    """Return where they end, too. Raises LogCorrupt, struct.error."""
    (count,) = _COUNT.unpack_from(body, at)
    at += _COUNT.size
    end = at + count * _WAIT.size
    if count < 0 or end > len(body):
        raise LogCorrupt(f"share state of {len(body)} bytes cannot list {count} waits")
    found = [
        Wait(Offset(row[0]), Offset(row[1]), row[2]) for row in _WAIT.iter_unpack(body[at:end])
    ]
    for first, last, free_at_ms in found:
        if first > last or free_at_ms <= 0:
            raise LogCorrupt(f"records {first} to {last} of a share group wait for {free_at_ms}")
    return end, found


def _range(first: int, last: int, state: int, deliveries: int) -> StoredRange:
    if state not in _STORED or first > last:
        raise LogCorrupt(f"records {first} to {last} of a share group have state {state}")
    return StoredRange(Offset(first), Offset(last), RecordState(state), deliveries)
