"""Searches in the records of a batch: the same answers as by decoding all, in bounded steps."""

from __future__ import annotations

from typing import Any

import pytest

from client.errors import RemoteProtocolError
from client.ids import Offset
from client.wire.kafka.batches.record_scan import (
    OpenedRecords,
    cautious_records_max,
    first_not_older,
    newest_from,
    records_from,
)
from client.wire.kafka.batches.records import (
    BatchHeader,
    Codec,
    Record,
    build_batch,
    pack_batch,
    parse_header,
    records,
)
from client.wire.steps import STEP_RECORDS, Steps, finish

TINY = b"\x0c\x00\x00\x00\x00\x00\x00"
"""A record with an empty key, an empty value and no headers; all deltas are 0."""
MANY = 3 * STEP_RECORDS


def sealed(body: bytes, count: int) -> bytes:
    head = parse_header(build_batch([Record(b"k", b"v", 1000)]))
    fields: dict[str, Any] = {"record_count": count, "last_offset_delta": count - 1}
    return pack_batch(BatchHeader(*head)._replace(**fields), body)


def steps_of(steps: Steps[Any]) -> int:
    return sum(1 for _ in steps)


MIXED = [
    Record(b"k", b"v", 1000, (("name", b"value"), ("other", None))),
    Record(None, b"w" * 200, 1005),
    Record(b"", None, 990),
    Record(None, None, 1010),
]


@pytest.mark.parametrize("codec", Codec)
def test_it_finds_what_decoding_finds(codec: Codec) -> None:
    batch = build_batch(MIXED, base_offset=Offset(70), codec=codec)
    everything = list(records(batch))
    for timestamp in range(985, 1015):
        for start in range(68, 76):
            expected = next(
                (
                    (one.offset, one.timestamp_ms)
                    for one in everything
                    if one.timestamp_ms >= timestamp and one.offset >= start
                ),
                None,
            )
            assert finish(first_not_older(batch, timestamp, Offset(start))) == expected
    for start in range(68, 76):
        expected_records = [one for one in everything if one.offset >= start]
        assert finish(records_from(batch, Offset(start), 100, 100)) == expected_records
        stamps = [one.timestamp_ms for one in expected_records]
        assert finish(newest_from(batch, Offset(start))) == max(stamps, default=-1)
        assert finish(records_from(batch, Offset(start), 1, 100)) == expected_records[:1]


def test_ordinary_batches_take_no_steps() -> None:
    batch = build_batch([Record(b"k", b"v" * 50, 1000)] * 500, codec=Codec.LZ4)
    assert steps_of(first_not_older(batch, 1001, Offset(0))) == 0


def test_a_step_passes_over_so_many_records() -> None:
    batch = sealed(TINY * MANY, MANY)
    assert steps_of(first_not_older(batch, 2000, Offset(0))) == 3
    assert steps_of(records_from(batch, Offset(1), 10, 10)) == 3
    assert steps_of(newest_from(batch, Offset(1))) == 3


def test_headers_count_like_records() -> None:
    """One record can hold millions of them."""
    count = 1 << 15
    inner = bytes(5) + b"\x80\x80\x04" + bytes(2) * count
    length = 2 * len(inner)
    varint = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14])
    batch = sealed(varint + inner, 1)
    assert steps_of(first_not_older(batch, 2000, Offset(0))) == count // STEP_RECORDS
    with pytest.raises(RemoteProtocolError, match="32768 headers; at most 1000 are shown"):
        finish(records_from(batch, Offset(0), 1, 1000))


def test_a_large_compressed_batch_is_inflated_in_a_step_of_its_own() -> None:
    batch = build_batch([Record(b"k", bytes(200_000), 1000)], codec=Codec.ZSTD)
    assert steps_of(first_not_older(batch, 2000, Offset(0))) == 1


def test_a_few_bytes_cannot_claim_many_records() -> None:
    assert cautious_records_max(100) == 16_384
    assert cautious_records_max(1_000_000) == 16_000_000
    count = 100_000
    data = parse_header(build_batch([Record(b"k", b"v", 1000)], codec=Codec.ZSTD))
    lying = pack_batch(data._replace(record_count=count), b"anything")
    with pytest.raises(RemoteProtocolError, match="100000 records in 69 bytes"):
        finish(first_not_older(lying, 0, Offset(0)))


def test_what_a_request_has_opened_is_bounded() -> None:
    opened = OpenedRecords(10_000)
    assert opened.take(9_000)
    assert not opened.take(1_001)
    assert opened.take(1_000)
    assert not opened.take(1)


def test_many_small_batches_end_a_turn_too() -> None:
    opened = OpenedRecords(1_000_000)
    turns = 0
    for _ in range(1_000):
        turns += opened.is_turn_over()
        opened.take(100)
    assert turns >= 1_000 * 100 // STEP_RECORDS
    assert turns <= 1_000 * 500 // STEP_RECORDS
    assert sum(OpenedRecords(1).is_turn_over() for _ in range(10)) == 0
