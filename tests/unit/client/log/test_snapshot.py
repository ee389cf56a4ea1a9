"""Snapshot entries: what leaders write, and what searches find in them."""

from __future__ import annotations

import struct

import pytest

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction, LedgerAborted
from client.log.entry_format import is_internal, open_internal, seal_internal
from client.log.snapshot import (
    NO_TRANSACTIONS,
    IndexPoint,
    SnapshotTransactions,
    open_snapshot,
    seal_snapshot,
    snapshot_points,
)
from client.wire.kafka.batches.records import Record, build_batch

EPOCH = LeaderEpoch(2)
POINTS = (IndexPoint(Offset(0), EntryId(0), -1), IndexPoint(Offset(30), EntryId(9), 777))


def test_snapshots_round_trip() -> None:
    found = open_snapshot(seal_snapshot(Offset(41), EPOCH, 900, POINTS, b"producers"))
    assert (found.log_end_offset, found.leader_epoch, found.max_timestamp_ms) == (41, 2, 900)
    assert found.points == POINTS
    assert bytes(found.producers) == b"producers"


def test_the_first_snapshot_of_a_ledger_lists_no_places() -> None:
    found = open_snapshot(seal_snapshot(Offset(41), EPOCH, -1, (), b""))
    assert found.points == ()
    assert bytes(found.producers) == b""


def test_unknown_types_and_versions_are_refused() -> None:
    with pytest.raises(LogCorrupt, match="type 7"):
        open_snapshot(seal_internal(Offset(0), EPOCH, 7, b""))
    with pytest.raises(LogCorrupt, match="version 9"):
        open_snapshot(seal_internal(Offset(0), EPOCH, 1, b"\x00\x09" + bytes(20)))
    with pytest.raises(LogCorrupt, match="truncated"):
        open_snapshot(seal_internal(Offset(0), EPOCH, 1, b"\x00\x01"))


@pytest.mark.parametrize("count", [-1, 2, 1 << 30])
def test_a_count_that_does_not_fit_the_entry_is_refused(count: int) -> None:
    body = struct.pack(">hqiqqq", 1, 7, count, 100, 0, -1)
    with pytest.raises(LogCorrupt, match=f"cannot list {count} places"):
        open_snapshot(seal_internal(Offset(0), EPOCH, 1, body))


def test_a_snapshot_is_an_index() -> None:
    snapshot = seal_snapshot(Offset(200), EPOCH, 7, POINTS, b"")
    assert is_internal(snapshot)
    assert snapshot_points(snapshot) == POINTS


def test_other_entries_are_no_index() -> None:
    points = struct.pack(">qiqqq", 7, 1, 100, 0, -1)  # as version 1 of a snapshot has them
    known = seal_internal(Offset(200), EPOCH, 1, b"\x00\x01" + points)
    assert snapshot_points(known) == (IndexPoint(Offset(100), EntryId(0), -1),)
    unknown_kind = seal_internal(Offset(200), EPOCH, 9, b"\x00\x01" + points)
    unknown_version = seal_internal(Offset(200), EPOCH, 1, b"\x00\x63" + points)
    too_many = seal_internal(Offset(200), EPOCH, 1, b"\x00\x01" + bytes(8) + b"\x7f" + bytes(3))
    batch = build_batch([Record(None, b"v")] * 3, base_offset=Offset(10))
    for entry in (unknown_kind, unknown_version, too_many, batch, known[:-1], b"", b"x" * 17):
        assert snapshot_points(entry) == ()


def index(*firsts: int) -> LedgerAborted:
    made = LedgerAborted()
    for first in firsts:
        entry = AbortedTransaction(ProducerId(1), Offset(first), Offset(first + 1))
        made.add(entry, Offset(first + 2))
    return made


def transactional() -> SnapshotTransactions:
    return SnapshotTransactions(
        True, index(40, 50), {LedgerId(7): index(3), LedgerId(8): index(20, 22)}
    )


def test_what_it_says_of_transactions() -> None:
    known = transactional()
    data = seal_snapshot(Offset(60), EPOCH, 900, POINTS, b"state", known)
    assert open_internal(data).body[:2] == b"\0\2"
    found = open_snapshot(data)
    assert found.points == POINTS
    assert bytes(found.producers) == b"state"
    assert found.transactions is not None
    assert found.transactions.is_transactional
    for ledger_id, own in ((9, known.aborted), *known.earlier.items()):
        got = found.transactions.index_of(LedgerId(ledger_id), own=LedgerId(9))
        assert got.encode() == own.encode()
    with pytest.raises(LogCorrupt, match="ledger 6"):
        found.transactions.index_of(LedgerId(6), own=LedgerId(9))


def test_a_partition_without_transactions_has_snapshots_that_old_brokers_read() -> None:
    data = seal_snapshot(Offset(60), EPOCH, 900, POINTS, b"state")
    assert open_internal(data).body[:2] == b"\0\1"
    assert open_snapshot(data).transactions is None
    empty = open_snapshot(seal_snapshot(Offset(60), EPOCH, 9, (), b"", NO_TRANSACTIONS))
    assert empty.transactions is not None
    assert (empty.transactions.is_transactional, len(empty.transactions.aborted)) == (False, 0)


def test_damage_in_what_it_says_of_transactions_is_refused() -> None:
    body = bytes(open_internal(seal_snapshot(Offset(60), EPOCH, 9, (), b"", transactional())).body)
    for size in range(14, len(body)):
        with pytest.raises(LogCorrupt):
            open_snapshot(seal_internal(Offset(60), EPOCH, 1, body[:size]))
