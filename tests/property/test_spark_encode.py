"""The NumPy encoder against the codec that takes records one by one; Kafka's partitioner."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given
from hypothesis import strategies as st

from client.spark.write.encode import encode, varints
from client.spark.write.partitioner import choose, murmur2
from client.wire.kafka.batches.records import Codec, Record, crc_of, parse_header, records

TEXT = st.text(max_size=12)
CONTENT = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=300))
RECORDS = st.builds(
    Record,
    offset=st.just(0),
    key=CONTENT,
    value=CONTENT,
    timestamp_ms=st.integers(-5_000, 5_000_000_000_000),
    headers=st.one_of(st.just(()), st.lists(st.tuples(TEXT, CONTENT), max_size=3).map(tuple)),
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows_of(found: list[Record]) -> pa.RecordBatch:
    headers = [
        [{"key": key, "value": value} for key, value in one.headers] or None for one in found
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([one.key for one in found], pa.binary()),
            pa.array([one.value for one in found], pa.binary()),
            pa.array(headers, HEADERS),
            pa.array([one.timestamp_ms for one in found], pa.int64()),
        ],
        names=["key", "value", "headers", "timestamp"],
    )


@given(
    found=st.lists(RECORDS, min_size=1, max_size=60),
    codec=st.sampled_from(Codec),
    batch_bytes=st.sampled_from([1, 300, 2000, 1 << 20]),
    skip=st.integers(0, 3),
)
def test_every_row_is_one_record(
    found: list[Record], codec: Codec, batch_bytes: int, skip: int
) -> None:
    rows = rows_of(found).slice(min(skip, len(found) - 1))
    found = found[min(skip, len(found) - 1) :]
    read: list[Record] = []
    for unsent in encode(rows, codec, batch_bytes):
        batch = unsent.sealed(9, 2, len(read))
        header = parse_header(batch)
        assert header.crc == crc_of(memoryview(batch))
        assert (header.producer_id, header.producer_epoch) == (9, 2)
        assert header.base_sequence == len(read)
        assert header.last_offset_delta == header.record_count - 1 == unsent.record_count - 1
        inside = list(records(batch))
        assert [one.offset for one in inside] == list(range(len(inside)))
        assert header.max_timestamp == max(one.timestamp_ms for one in inside)
        assert len(inside) == 1 or len(batch) < batch_bytes + 400
        read += [one._replace(offset=0) for one in inside]
    assert read == found


@given(columns=st.lists(st.lists(st.integers(-(1 << 62), 1 << 62), min_size=3, max_size=3)))
def test_varints_side_by_side(columns: list[list[int]]) -> None:
    if not columns:
        return
    arrays = [np.array(column, dtype=np.int64) for column in columns]
    for row, made in enumerate(varints(arrays).to_pylist()):
        expected = bytearray()
        for column in columns:
            number = (column[row] << 1) ^ (column[row] >> 63)
            while number > 0x7F:
                expected.append(number & 0x7F | 0x80)
                number >>= 7
            expected.append(number)
        assert made == bytes(expected)


@given(keys=st.lists(st.binary(max_size=40)), skip=st.integers(0, 2))
def test_keys_go_where_kafka_puts_them(keys: list[bytes], skip: int) -> None:
    array = pa.array(keys, pa.binary()).slice(skip)
    assert murmur2(array).tolist() == [murmur2_of_aiokafka(key) & 0xFFFFFFFF for key in keys[skip:]]


def test_a_partition_that_is_named_wins_over_the_key() -> None:
    keys = pa.array([b"a", None, b"a", None], pa.binary())
    wanted = pa.array([None, None, 3, 4], pa.int32())
    by_key = (murmur2_of_aiokafka(b"a") & 0x7FFFFFFF) % 6
    assert choose(wanted, keys, 6, 5).tolist() == [by_key, 5, 3, 4]
