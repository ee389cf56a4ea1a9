"""Records inside a batch, against an independent codec."""

from __future__ import annotations

import contextlib
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from client.errors import RemoteProtocolError
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import (
    CODEC_MASK,
    HEADER_BYTES,
    Codec,
    Record,
    build_batch,
    crc_of,
    pack_batch,
    parse_header,
    records,
)

RECORDS = [
    Record(b"key", b"value" * 40, 1_700_000_000_000, (("trace", b"\x00\x01"), ("none", None))),
    Record(None, b"", 1_700_000_000_500),
    Record(b"", None, 1_699_999_999_000),
]


@pytest.mark.parametrize("codec", list(Codec))
def test_what_we_build_an_independent_reader_reads(codec: Codec) -> None:
    data = build_batch(RECORDS, codec=codec, producer_id=ProducerId(5), producer_epoch=1)
    reader = DefaultRecordBatch(bytearray(data))
    assert reader.validate_crc()
    assert reader.compression_type == codec
    found = [(r.key, r.value, r.timestamp, tuple(r.headers)) for r in reader]
    assert found == [(r.key, r.value, r.timestamp_ms, r.headers) for r in RECORDS]


@pytest.mark.parametrize("codec", list(Codec))
def test_what_an_independent_writer_writes_we_read(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number, record in enumerate(RECORDS):
        builder.append(number, record.timestamp_ms, record.key, record.value, list(record.headers))
    data = bytes(builder.build())
    assert crc_of(memoryview(data)) == parse_header(data).crc
    assert [r._replace(offset=RECORDS[0].offset) for r in records(data)] == RECORDS
    assert [r.offset for r in records(data)] == [0, 1, 2]


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            Record,
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=300),
            st.integers(-1, 2**45),
            st.lists(
                st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3
            ).map(tuple),
            st.just(Offset(0)),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(list(Codec)),
)
def test_round_trip(made: list[Record], codec: Codec) -> None:
    data = build_batch(made, codec=codec)
    assert [r._replace(offset=made[0].offset) for r in records(data)] == made
    assert parse_header(data).max_timestamp == max(r.timestamp_ms for r in made)


@settings(max_examples=150)
@given(st.binary(max_size=80), st.sampled_from(list(Codec)), st.integers(0, 5))
def test_damaged_records_never_raise_anything_else(body: bytes, codec: Codec, count: int) -> None:
    header = parse_header(build_batch(RECORDS, codec=codec))._replace(record_count=count)
    with contextlib.suppress(RemoteProtocolError):
        list(records(pack_batch(header, body), size_max=1 << 16))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_expansion_is_bounded(codec: Codec) -> None:
    bomb = build_batch([Record(None, b"\x00" * 4_000_000)], codec=codec)
    with pytest.raises(RemoteProtocolError):
        list(records(bomb, size_max=1_000_000))
    assert len(list(records(bomb, size_max=5_000_000))) == 1


def test_snappy_in_xerial_frames() -> None:
    plain = build_batch(RECORDS)
    snappy = build_batch(RECORDS, codec=Codec.SNAPPY)
    block = snappy[HEADER_BYTES:]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(block)) + block
    again = pack_batch(parse_header(snappy), framed)
    assert list(records(again)) == list(records(plain))
    for cut in (17, 19, len(framed) - 1):
        with pytest.raises(RemoteProtocolError):
            list(records(pack_batch(parse_header(snappy), framed[:cut])))


def test_unknown_codec() -> None:
    header = parse_header(build_batch(RECORDS))._replace(attributes=6)
    assert header.attributes & CODEC_MASK == 6
    with pytest.raises(RemoteProtocolError):
        list(records(pack_batch(header, b"")))


def test_endless_varint() -> None:
    header = parse_header(build_batch(RECORDS))
    with pytest.raises(RemoteProtocolError):
        list(records(pack_batch(header, b"\xff" * 30)))
