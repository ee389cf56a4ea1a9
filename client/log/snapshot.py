"""The snapshot entry: what a new leader, or a search, needs to know of everything before it.

A ledger begins with a snapshot and gets another one every few megabytes or dozens of entries, so
whoever opens it reads back a short tail: the last snapshot, and the headers after it. A search
finds in the last snapshot where the earlier ones are: a coarse index for free. Body:

    version i16, max_timestamp i64 of this ledger so far,
    point count i32, points (offset i64, entry id i64, max_timestamp_before i64) of the
    snapshots of this ledger before this one, without those close to the one before;
    from version 2 on, transactions (below);
    the state of producers, which is the leader's to encode: version 1 of the idempotent ones only,
    version 2 with transactions, version 3 with those and share groups

    transactions   flags i8 (1: this ledger holds data of transactions, or markers, so far),
                   index of this ledger's aborted transactions so far (`aborted_transactions.py`),
                   count i32, per ledger before this one whose writer did not end it: ledger id i64,
                   and its index: in the first snapshot of a ledger only

A partition that has seen no transaction gets snapshots of version 1, one without share groups those
of version 1 or 2, so that brokers that know neither can still lead it. An unknown version is
refused, never guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.aborted_transactions import LedgerAborted, decode_index
from client.log.entry_format import SNAPSHOT_TYPE, is_internal, open_internal, seal_internal
from client.wire.kafka.batches.records import Buffer

SNAPSHOT_VERSION: Final = 1
TRANSACTIONS_VERSION: Final = 2
SHARES_VERSION: Final = 3

_HEAD: Final = struct.Struct(">hqi")
_POINT: Final = struct.Struct(">qqq")
_FLAGS: Final = struct.Struct(">b")
_COUNT: Final = struct.Struct(">i")
_LEDGER: Final = struct.Struct(">q")
_TRANSACTIONAL: Final = 1


class IndexPoint(NamedTuple):
    """A known place in a ledger."""

    offset: Offset
    entry_id: EntryId
    max_timestamp_before: int
    """Largest timestamp of all entries before it in this ledger; -1: none."""


class SnapshotTransactions(NamedTuple):
    """What a snapshot says of transactions, beside the leader's own state of them."""

    is_transactional: bool
    """Whether this ledger holds data of transactions, or markers, so far."""
    aborted: LedgerAborted
    """Of this ledger so far."""
    earlier: Mapping[LedgerId, LedgerAborted]
    """All of the ledgers before it whose writers did not end them."""

    def index_of(self, ledger_id: LedgerId, *, own: LedgerId) -> LedgerAborted:
        """Return the index of a ledger that names this snapshot, which is in ledger `own`.

        Raises LogCorrupt.
        """
        found = self.aborted if ledger_id == own else self.earlier.get(ledger_id)
        if found is None:
            raise LogCorrupt(f"no aborted transactions of ledger {ledger_id} in ledger {own}")
        return found


NO_TRANSACTIONS: Final = SnapshotTransactions(False, LedgerAborted(), {})


class Snapshot(NamedTuple):
    """An opened snapshot; `producers` is still encoded."""

    log_end_offset: Offset
    leader_epoch: LeaderEpoch
    max_timestamp_ms: int
    points: tuple[IndexPoint, ...]
    producers: memoryview
    """The leader's state: producers, and from version 2 on their transactions."""
    transactions: SnapshotTransactions | None = None
    """None: version 1."""
    has_shares: bool = False
    """Whether the leader's state has share groups: version 3."""


def seal_snapshot(
    log_end_offset: Offset,
    leader_epoch: LeaderEpoch,
    max_timestamp_ms: int,
    points: Sequence[IndexPoint],
    producers: bytes,
    transactions: SnapshotTransactions | None = None,
    *,
    has_shares: bool = False,
) -> bytes:
    """Return the bytes of a snapshot entry, of version 2 if there are `transactions`, which share
    groups in the leader's state need, too: version 3."""
    assert transactions is not None or not has_shares
    version = SNAPSHOT_VERSION if transactions is None else TRANSACTIONS_VERSION
    if has_shares:
        version = SHARES_VERSION
    parts = [_HEAD.pack(version, max_timestamp_ms, len(points))]
    parts += (_POINT.pack(*point) for point in points)
    if transactions is not None:
        parts.append(_encode_transactions(transactions))
    parts.append(producers)
    return seal_internal(log_end_offset, leader_epoch, SNAPSHOT_TYPE, b"".join(parts))


def open_snapshot(payload: Buffer) -> Snapshot:
    """Verify and open a snapshot entry. Raises LogCorrupt, also for versions of the future."""
    entry = open_internal(payload)
    if entry.type != SNAPSHOT_TYPE:
        raise LogCorrupt(f"internal entry of unknown type {entry.type}")
    if len(entry.body) < _HEAD.size:
        raise LogCorrupt(f"snapshot of {len(entry.body)} bytes is truncated")
    version, max_timestamp_ms, count = _HEAD.unpack_from(entry.body)
    if not SNAPSHOT_VERSION <= version <= SHARES_VERSION:
        raise LogCorrupt(
            f"snapshot of version {version}, only {SNAPSHOT_VERSION} to {SHARES_VERSION} are known:"
            " it was written by a newer broker"
        )
    producers_at = _HEAD.size + count * _POINT.size
    if not _HEAD.size <= producers_at <= len(entry.body):
        raise LogCorrupt(f"snapshot of {len(entry.body)} bytes cannot list {count} places")
    points = tuple(
        IndexPoint(Offset(offset), EntryId(entry_id), before)
        for offset, entry_id, before in _POINT.iter_unpack(entry.body[_HEAD.size : producers_at])
    )
    rest = entry.body[producers_at:]
    transactions = None
    if version >= TRANSACTIONS_VERSION:
        transactions, rest = _decode_transactions(rest)
    return Snapshot(
        entry.log_end_offset,
        entry.leader_epoch,
        max_timestamp_ms,
        points,
        rest,
        transactions,
        version >= SHARES_VERSION,
    )


def _encode_transactions(transactions: SnapshotTransactions) -> bytes:
    flags = _TRANSACTIONAL if transactions.is_transactional else 0
    earlier = transactions.earlier
    parts = [_FLAGS.pack(flags), transactions.aborted.encode(), _COUNT.pack(len(earlier))]
    for ledger_id, index in earlier.items():
        parts += (_LEDGER.pack(ledger_id), index.encode())
    return b"".join(parts)


def _decode_transactions(data: memoryview) -> tuple[SnapshotTransactions, memoryview]:
    try:
        (flags,) = _FLAGS.unpack_from(data)
        aborted, rest = decode_index(data[_FLAGS.size :])
        (count,) = _COUNT.unpack_from(rest)
        rest = rest[_COUNT.size :]
        earlier: dict[LedgerId, LedgerAborted] = {}
        for _ in range(count):
            (ledger_id,) = _LEDGER.unpack_from(rest)
            earlier[ledger_id], rest = decode_index(rest[_LEDGER.size :])
    except struct.error as error:
        raise LogCorrupt(f"transactions of a snapshot, {len(data)} bytes, are cut") from error
    return SnapshotTransactions(bool(flags & _TRANSACTIONAL), aborted, earlier), rest


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
