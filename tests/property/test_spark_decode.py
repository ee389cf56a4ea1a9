"""The NumPy decoder against two codecs that take records one by one: ours and aiokafka's."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from client.spark.decode.batch_run import read_run
from client.spark.decode.decode import DamagedBatch, Wanted, decode, decode_runs
from client.spark.decode.record_fields import PADDING
from client.spark.schema import COLUMNS, arrow_schema
from client.spark.splits import AbortedTransaction
from client.wire.kafka.batches import records
from client.wire.kafka.batches.records import (
    Codec,
    Record,
    build_batch,
    pack_batch,
    parse_header,
    stamp_log_append_time,
)

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

TEXT = st.text(max_size=12)
CONTENT = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=200))
HEADERS = st.lists(st.tuples(TEXT, CONTENT), max_size=3).map(tuple)
RECORDS = st.builds(
    Record,
    key=CONTENT,
    value=CONTENT,
    timestamp_ms=st.integers(-5_000, 5_000_000_000_000),
    headers=st.one_of(st.just(()), HEADERS),
)


class Shape(NamedTuple):
    """How a batch is to be made."""

    records: list[Record]
    codec: Codec
    hole: int
    """Offsets between the previous batch and this one: compaction left them empty."""
    producer_id: int
    """-1: no producer id; others are transactional."""
    is_control: bool
    by_broker: bool
    lost: frozenset[int]
    """Records that compaction took out of the batch."""


SHAPES = st.builds(
    Shape,
    records=st.lists(RECORDS, min_size=1, max_size=40),
    codec=st.sampled_from(Codec),
    hole=st.sampled_from([0, 0, 0, 1, 1000]),
    producer_id=st.sampled_from([-1, -1, 7, 8]),
    is_control=st.sampled_from([False, False, False, True]),
    by_broker=st.booleans(),
    lost=st.frozensets(st.integers(0, 39), max_size=6),
)


def without(batch: bytes, lost: frozenset[int]) -> bytes:
    """Take records out of an uncompressed batch as a compaction does; offsets stay."""
    header = parse_header(batch)
    kept = bytearray()
    at = count = 0
    body = memoryview(batch)[61:]
    for index in range(header.record_count):
        length, after = records.get_varint(body, at)
        if index not in lost:
            kept += body[at : after + length]
            count += 1
        at = after + length
    return pack_batch(header._replace(record_count=count), kept)


def make(shape: Shape, base_offset: int) -> bytes:
    batch = build_batch(
        shape.records,
        base_offset=base_offset,
        producer_id=shape.producer_id,
        transactional=shape.producer_id >= 0,
        control=shape.is_control,
    )
    batch = without(batch, shape.lost)
    header = parse_header(batch)
    body = records.compress(shape.codec, batch[61:])
    batch = pack_batch(header._replace(attributes=header.attributes | shape.codec), body)
    if shape.by_broker:
        header = parse_header(batch)
        head = stamp_log_append_time(memoryview(batch), header, base_offset, 0, 1_234_567)
        batch = head + batch[61:]
    return batch


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def row(record: Record, *, by_broker: bool, partition: int = 3) -> dict[str, Any]:
    headers = [{"key": key, "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": partition,
        "offset": record.offset,
        "timestamp": EPOCH + datetime.timedelta(milliseconds=record.timestamp_ms),
        "timestampType": int(by_broker),
        "headers": headers or None,
    }


@given(data=st.data(), shapes=st.lists(SHAPES, min_size=1, max_size=30))
def test_every_wanted_record_is_one_row(data: st.DataObject, shapes: list[Shape]) -> None:
    aborted = [AbortedTransaction(7, 20, 90), AbortedTransaction(8, 50, 300)]
    read_committed = data.draw(st.booleans())
    batches, expected, offset = [], [], 0
    for shape in shapes:
        offset += shape.hole
        batch = make(shape, offset)
        batches.append(batch)
        doomed = read_committed and any(
            one.producer_id == shape.producer_id and one.first_offset <= offset <= one.last_offset
            for one in aborted
        )
        if not shape.is_control and not doomed:
            expected += [
                row(record, by_broker=shape.by_broker) for record in records.records(batch)
            ]
        offset += len(shape.records)
    start = data.draw(st.integers(0, offset))
    end = data.draw(st.integers(start, offset + 1))
    columns = data.draw(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
    cut = data.draw(st.integers(1, len(batches)))
    chunks = [b"".join(batches[at : at + cut]) for at in range(0, len(batches), cut)]
    wanted = Wanted(
        "t", 3, start, end, columns, read_committed,
        batch_rows=data.draw(st.integers(1, 300)),
        batch_bytes=data.draw(st.sampled_from([100, 4 << 20])),
    )  # fmt: skip

    if data.draw(st.booleans()):
        made = list(decode(chunks, wanted, aborted))
    else:
        behind = data.draw(st.binary(min_size=len(PADDING), max_size=len(PADDING)))
        made = list(decode_runs([(read_run(one + behind), 0) for one in chunks], wanted, aborted))

    assert rows_of(made) == [
        {name: one[name] for name in columns} for one in expected if start <= one["offset"] < end
    ]
    assert all(batch.schema == arrow_schema(columns) and batch.num_rows for batch in made)
    for batch in made:
        batch.validate(full=True)


@given(
    codec=st.sampled_from([0, 1, 2, 3, 4]),
    records=st.lists(RECORDS, min_size=1, max_size=60),
)
def test_batches_of_aiokafka(codec: int, records: list[Record]) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for offset, record in enumerate(records):
        headers = [(key, value) for key, value in record.headers]
        assert builder.append(offset, record.timestamp_ms, record.key, record.value, headers)
    made = list(decode([bytes(builder.build())], Wanted("t", 3, 0, 1 << 60, COLUMNS)))
    assert rows_of(made) == [
        row(record._replace(offset=offset), by_broker=False)
        for offset, record in enumerate(records)
    ]


@given(
    records=st.lists(RECORDS, min_size=1, max_size=20),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8),
    columns=st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True),
    count=st.sampled_from([None, 0, 1, 5, 1 << 30]),
)
def test_nonsense_with_a_right_checksum_is_an_error_or_rows(
    records: list[Record],
    changes: list[tuple[int, int]],
    columns: list[str],
    count: int | None,
) -> None:
    batch = build_batch(records)
    body = bytearray(batch[61:])
    for at, byte in changes:
        body[at % len(body)] = byte
    header = parse_header(batch)
    wrong = pack_batch(
        header._replace(record_count=header.record_count if count is None else count), body
    )
    after = build_batch([Record(b"k", b"v")] * 30, base_offset=10_000)
    try:
        made = list(decode([wrong, after], Wanted("t", 3, 0, 1 << 60, columns)))
    except DamagedBatch as error:
        assert str(error).startswith("topic t partition 3: the batch at offset 0 is damaged: ")
    else:
        for one in made:
            one.validate(full=True)
