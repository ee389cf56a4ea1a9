"""Batch headers, stamps and checksums."""

from __future__ import annotations

import struct

import pytest

from client.errors import RemoteProtocolError
from client.ids import LeaderEpoch, Offset, ProducerId
from client.wire.kafka.batches.records import (
    HEADER_BYTES,
    STAMP_BYTES,
    Record,
    build_batch,
    crc_of,
    headers,
    parse_header,
    peek_base_offset,
    records,
    stamp,
    stamp_log_append_time,
)


def batch(count: int = 3, **options: object) -> bytes:
    made = [Record(b"k%d" % i, b"v%d" % i, 1000 + i) for i in range(count)]
    return build_batch(made, **options)


def test_header_fields_are_read_from_their_places() -> None:
    data = batch(
        base_offset=Offset(7), producer_id=ProducerId(99), producer_epoch=4, base_sequence=12
    )
    header = parse_header(data)
    assert header.base_offset == 7
    assert header.size == len(data)
    assert header.magic == 2
    assert header.next_offset == 10
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (99, 4, 12)
    assert header.record_count == 3
    assert not header.is_control
    assert not header.is_transactional
    assert not header.has_log_append_time


def test_flags_come_from_the_attributes() -> None:
    header = parse_header(batch(1, transactional=True, control=True))
    assert header.is_control
    assert header.is_transactional


def test_crc_covers_everything_from_the_attributes() -> None:
    data = bytearray(batch())
    header = parse_header(data)
    assert crc_of(memoryview(data)) == header.crc
    data[21] ^= 1
    assert crc_of(memoryview(data)) != header.crc


def test_stamp_replaces_offset_and_epoch_and_leaves_the_crc_valid() -> None:
    data = batch()
    header = parse_header(data)
    prefix = stamp(Offset(5000), header.batch_length, LeaderEpoch(3))
    stamped = prefix + data[STAMP_BYTES:]
    after = parse_header(stamped)
    assert (after.base_offset, after.leader_epoch) == (5000, 3)
    assert after.crc == crc_of(memoryview(stamped)) == header.crc
    assert peek_base_offset(stamped) == 5000


def test_log_append_time_changes_timestamp_and_crc_only() -> None:
    data = batch()
    view = memoryview(data)
    head = stamp_log_append_time(view, parse_header(data), Offset(50), LeaderEpoch(2), 777_000)
    assert len(head) == HEADER_BYTES
    stamped = head + data[HEADER_BYTES:]
    header = parse_header(stamped)
    assert header.has_log_append_time
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (50, 2, 777_000)
    assert header.crc == crc_of(memoryview(stamped))
    assert [record.timestamp_ms for record in records(stamped)] == [777_000] * 3
    assert [record.offset for record in records(stamped)] == [50, 51, 52]


def test_headers_walks_concatenated_batches() -> None:
    first, second = batch(2), batch(5)
    found = list(headers(first + second))
    assert [at for at, _ in found] == [0, len(first)]
    assert [header.record_count for _, header in found] == [2, 5]


@pytest.mark.parametrize("cut", [1, 60, 61, 70])
def test_truncated_batches_are_refused(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        list(headers(batch()[:cut]))


def test_short_length_field_is_refused() -> None:
    data = bytearray(batch())
    struct.pack_into(">i", data, 8, 10)
    with pytest.raises(RemoteProtocolError):
        list(headers(data))


def test_other_magic_is_refused() -> None:
    data = bytearray(batch())
    data[16] = 1
    with pytest.raises(RemoteProtocolError):
        list(headers(data))


def test_peek_needs_eight_bytes() -> None:
    with pytest.raises(RemoteProtocolError):
        peek_base_offset(b"1234567")
