"""The data source reads what brokers write: segment lists and entries."""

from __future__ import annotations

import struct

import pytest

from broker.core.entry_format import seal_internal
from broker.core.offset_index import IndexPoint
from broker.core.producer_state import ProducerState
from broker.core.segments import Segment, SegmentFacts, SegmentList
from broker.core.snapshot import seal_snapshot
from client.errors import RemoteProtocolError
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.spark import log_entry
from client.spark.segment_list import parse_segments
from client.wire.kafka.record_builder import Record, build_batch

EPOCH = LeaderEpoch(4)


def test_segments_as_brokers_list_them() -> None:
    sealed = Segment(LedgerId(3), Offset(10), EPOCH, 1, SegmentFacts(Offset(19), 100, 5))
    empty = Segment(LedgerId(4), Offset(20), EPOCH, 2, SegmentFacts(Offset(19), 100, -1))
    written = Segment(LedgerId(5), Offset(20), EPOCH, 3)
    rolling = Segment(LedgerId(6), None, EPOCH, 4)
    listed = SegmentList(EPOCH, Offset(12), (sealed, empty, written, rolling)).check()
    found = parse_segments(listed.encode())
    assert found.log_start_offset == 12
    assert [tuple(one) for one in found.segments] == [
        (3, 10, 20), (4, 20, 20), (5, 20, None), (6, None, None)
    ]  # fmt: skip


def test_a_deleted_partition_has_no_segments() -> None:
    listed = SegmentList(EPOCH, Offset(0), (Segment(LedgerId(3), Offset(0), EPOCH, 1),))
    assert parse_segments(listed.condemned().encode()).segments == ()
    assert parse_segments(b"").segments == ()


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"version": 2}', b'{"version": 1}'])
def test_segment_lists_that_are_not_understood(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_segments(data)


def test_a_snapshot_is_an_index() -> None:
    points = [IndexPoint(Offset(100), EntryId(0), -1), IndexPoint(Offset(150), EntryId(9), 7)]
    snapshot = seal_snapshot(Offset(200), EPOCH, 7, points, ProducerState())
    assert log_entry.is_internal(snapshot)
    assert log_entry.snapshot_points(snapshot) == [(100, 0), (150, 9)]
    assert log_entry.first_offset(snapshot) == log_entry.next_offset(snapshot) == 200


def test_internal_entries_of_other_kinds_are_no_index() -> None:
    points = struct.pack(">qiqqq", 7, 1, 100, 0, -1)  # as version 1 of a snapshot has them
    unknown_kind = seal_internal(Offset(200), EPOCH, 9, b"\x00\x01" + points)
    unknown_version = seal_internal(Offset(200), EPOCH, 1, b"\x00\x63" + points)
    known = seal_internal(Offset(200), EPOCH, 1, b"\x00\x01" + points)
    assert log_entry.snapshot_points(known) == [(100, 0)]
    too_many = seal_internal(Offset(200), EPOCH, 1, b"\x00\x01" + bytes(8) + b"\x7f" + bytes(3))
    for entry in (unknown_kind, unknown_version, too_many, b"", b"x" * 17):
        assert log_entry.snapshot_points(entry) == []


def test_entries_with_records() -> None:
    first = build_batch([Record(None, b"v")] * 3, base_offset=Offset(10))
    second = build_batch([Record(None, b"v")] * 2, base_offset=Offset(20), transactional=True)
    entry = first + second
    assert not log_entry.is_internal(entry)
    assert (log_entry.first_offset(entry), log_entry.next_offset(entry)) == (10, 22)
    assert log_entry.has_transactions(entry)
    assert not log_entry.has_transactions(first)
    assert log_entry.snapshot_points(entry) == []
    with pytest.raises(RemoteProtocolError):
        log_entry.next_offset(b"")
