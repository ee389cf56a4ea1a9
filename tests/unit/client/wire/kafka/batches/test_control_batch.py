"""Markers: the bytes that Kafka writes, and what is refused."""

from __future__ import annotations

import pytest

from client.errors import RemoteProtocolError
from client.ids import ProducerId
from client.wire.kafka.batches.control_batch import MARKER_BYTES, Marker, build_marker, read_marker
from client.wire.kafka.batches.records import Record, build_batch, crc_of, parse_header

COMMIT = Marker(ProducerId(0x0102), 3, True, 7)
ABORT = COMMIT._replace(is_commit=False)
KEY = bytes([0, 0, 0, 1])
VALUE = bytes([0, 0, 0, 0, 0, 7])


@pytest.mark.parametrize("marker", [COMMIT, ABORT, Marker(ProducerId(0), 0, True, 2**31 - 1)])
def test_what_is_built_is_read(marker: Marker) -> None:
    assert read_marker(build_marker(marker, 1_700_000_000_000)) == marker


def test_the_layout_is_kafkas() -> None:
    batch = build_marker(COMMIT, 5)
    header = parse_header(batch)
    assert len(batch) == MARKER_BYTES == header.size
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (0x0102, 3, -1)
    assert (header.record_count, header.last_offset_delta) == (1, 0)
    assert (header.base_timestamp, header.max_timestamp) == (5, 5)
    assert header.crc == crc_of(memoryview(batch))
    # length 16, attributes, both deltas, key of 4 bytes, value of 6, no headers
    assert batch[61:] == bytes([32, 0, 0, 0, 8, *KEY, 12, *VALUE, 0])
    assert build_marker(ABORT, 5)[61:] == bytes([32, 0, 0, 0, 8, 0, 0, 0, 0, 12, *VALUE, 0])


def control(key: bytes | None, value: bytes | None, count: int = 1) -> bytes:
    return build_batch(
        [Record(key, value, 5)] * count,
        producer_id=ProducerId(1),
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def test_a_later_version_may_append_fields() -> None:
    later = control(bytes([0, 1, 0, 1, 9]), bytes([0, 1, 0, 0, 0, 7, 9]))
    assert read_marker(later) == Marker(ProducerId(1), 0, True, 7)


@pytest.mark.parametrize(
    "batch",
    [
        control(KEY, VALUE, count=2),
        control(None, VALUE),
        control(KEY, None),
        control(KEY[:3], VALUE),
        control(KEY, VALUE[:5]),
        control(bytes([0, 0, 0, 2]), VALUE),
        control(bytes([0xFF, 0xFF, 0, 1]), VALUE),
        control(KEY, bytes([0xFF, 0xFF, 0, 0, 0, 7])),
        build_batch([Record(KEY, VALUE, 5)], producer_id=ProducerId(1), producer_epoch=0),
        build_batch([Record(KEY, VALUE, 5)], control=True, transactional=True),
        build_batch([Record(KEY, VALUE, 5)], producer_id=ProducerId(1), control=True),
    ],
)
def test_what_is_no_marker_is_refused(batch: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_marker(batch)


def test_cut_bytes_are_refused() -> None:
    batch = build_marker(COMMIT, 5)
    for size in range(len(batch)):
        with pytest.raises(RemoteProtocolError):
            read_marker(batch[:size])
