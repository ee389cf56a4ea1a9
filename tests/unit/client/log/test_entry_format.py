"""Entries: batches and internal entries."""

from __future__ import annotations

import pytest

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, Offset
from client.log.entry_format import (
    batch_headers,
    first_offset,
    has_transactions,
    is_internal,
    next_offset,
    open_internal,
    seal_internal,
)
from client.wire.kafka.batches.record_builder import Record, build_batch
from client.wire.kafka.batches.records import parse_header

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


def test_where_entries_begin_and_end() -> None:
    first = build_batch([Record(None, b"v")] * 3, base_offset=Offset(10))
    second = build_batch([Record(None, b"v")] * 2, base_offset=Offset(20), transactional=True)
    entry = first + second
    assert not is_internal(entry)
    assert (first_offset(entry), next_offset(entry)) == (10, 22)
    assert has_transactions(entry)
    assert not has_transactions(first)
    internal = seal_internal(Offset(12), LeaderEpoch(4), 9, b"body")
    assert first_offset(internal) == next_offset(internal) == 12
    for damaged in (b"", entry[:-1]):
        with pytest.raises(LogCorrupt):
            next_offset(damaged)
        with pytest.raises(LogCorrupt):
            has_transactions(damaged)
