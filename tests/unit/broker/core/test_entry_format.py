"""Entries: batches, internal entries, snapshots."""

from __future__ import annotations

import pytest

from broker.core.entry_format import (
    batch_headers,
    first_offset,
    is_internal,
    open_internal,
    seal_internal,
)
from broker.core.offset_index import IndexPoint
from broker.core.producer_state import ProducerState
from broker.core.snapshot import open_snapshot, seal_snapshot
from broker.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, Offset, ProducerId
from client.wire.kafka.record_builder import Record, build_batch
from client.wire.kafka.records import parse_header

BATCH = build_batch([Record(b"k", b"v", 10)], base_offset=Offset(70), leader_epoch=LeaderEpoch(3))


def test_internal_entries_round_trip() -> None:
    data = seal_internal(Offset(12), LeaderEpoch(4), 9, b"body")
    assert is_internal(data)
    entry = open_internal(data)
    assert (entry.log_end_offset, entry.leader_epoch, entry.type) == (12, 4, 9)
    assert bytes(entry.body) == b"body"
    assert first_offset(data) == 12


def test_both_kinds_can_be_read_as_a_batch_prefix() -> None:
    internal = seal_internal(Offset(12), LeaderEpoch(4), 1, b"x" * 60)
    header = parse_header(internal)
    assert (header.base_offset, header.size, header.leader_epoch) == (12, len(internal), 4)
    assert header.magic not in (0, 1, 2)
    assert not is_internal(BATCH)
    assert first_offset(BATCH) == 70


@pytest.mark.parametrize("at", [5, 9, 16, 18, 21, 23])
def test_damaged_internal_entries_are_refused(at: int) -> None:
    data = bytearray(seal_internal(Offset(12), LeaderEpoch(4), 1, b"body"))
    data[at] ^= 0x01
    if at == 5:  # outside the checksum, like a batch's base offset
        assert open_internal(data).log_end_offset != 12
        return
    with pytest.raises(LogCorrupt):
        open_internal(data)


def test_truncated_entries_are_refused() -> None:
    with pytest.raises(LogCorrupt):
        open_internal(b"123")
    with pytest.raises(LogCorrupt):
        first_offset(b"123")
    with pytest.raises(LogCorrupt):
        batch_headers(b"")
    with pytest.raises(LogCorrupt):
        batch_headers(BATCH[:-1])


def test_an_entry_may_hold_several_batches() -> None:
    second = build_batch([Record(None, b"w", 1)] * 2, base_offset=Offset(71))
    found = batch_headers(BATCH + second)
    assert [(at, header.base_offset) for at, header in found] == [(0, 70), (len(BATCH), 71)]


def snapshot() -> tuple[bytes, ProducerState]:
    producers = ProducerState()
    batch = build_batch(
        [Record(None, b"x", 1)], producer_id=ProducerId(8), producer_epoch=0, base_sequence=3
    )
    producers.accept(parse_header(batch), Offset(40), 1000)
    points = [IndexPoint(Offset(0), EntryId(0), -1), IndexPoint(Offset(30), EntryId(9), 777)]
    return seal_snapshot(Offset(41), LeaderEpoch(2), 900, points, producers), producers


def test_snapshots_round_trip() -> None:
    data, producers = snapshot()
    found = open_snapshot(data)
    assert (found.log_end_offset, found.leader_epoch, found.max_timestamp_ms) == (41, 2, 900)
    assert found.points == (
        IndexPoint(Offset(0), EntryId(0), -1),
        IndexPoint(Offset(30), EntryId(9), 777),
    )
    restored = ProducerState()
    assert not restored.restore(found.producers)
    assert list(restored.windows()) == list(producers.windows())


def test_unknown_types_and_versions_are_refused() -> None:
    with pytest.raises(LogCorrupt, match="type 7"):
        open_snapshot(seal_internal(Offset(0), LeaderEpoch(0), 7, b""))
    with pytest.raises(LogCorrupt, match="version 9"):
        open_snapshot(seal_internal(Offset(0), LeaderEpoch(0), 1, b"\x00\x09" + bytes(20)))
    with pytest.raises(LogCorrupt, match="truncated"):
        open_snapshot(seal_internal(Offset(0), LeaderEpoch(0), 1, b"\x00\x01"))
