"""A batch in the codec that its topic wants: what stays, what changes, how large it may be."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from broker.errors import BatchTooLarge, MessageTooLarge
from broker.partition.core.batch_checks import (
    BatchLimits,
    CheckedBatch,
    check_batch,
    is_recompressed,
    recompressed,
)
from client.ids import ProducerId
from client.wire.kafka.batches.records import (
    CODEC_MASK,
    Codec,
    Compression,
    Record,
    build_batch,
    crc_of,
    parse_header,
    records,
)

NOW_MS = 1_700_000_000_000
LIMITS = BatchLimits()
RECORDS = [
    Record(b"key", b"value" * 400, NOW_MS, (("trace", b"\x00\x01"), ("none", None))),
    Record(None, b"", NOW_MS + 500),
    Record(b"", None, NOW_MS - 1_000),
]
NUMBERED = {
    "producer_id": ProducerId(5), "producer_epoch": 3, "base_sequence": 77, "transactional": True,
}  # fmt: skip


def again(
    data: bytes, wanted: Compression, limits: BatchLimits = LIMITS
) -> tuple[bytes, CheckedBatch]:
    view = memoryview(data)
    return recompressed(view, check_batch(view, limits, NOW_MS), wanted, limits)


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("wanted", list(Codec))
def test_only_the_codec_changes(sent: Codec, wanted: Codec) -> None:
    data = build_batch(RECORDS, codec=sent, **NUMBERED)
    stored, checked = again(data, Compression(wanted))
    before, after = parse_header(data), parse_header(stored)
    assert after.attributes & CODEC_MASK == wanted
    assert after.crc == crc_of(memoryview(stored))
    assert after.size == len(stored)
    changed = {"crc", "batch_length", "attributes"}
    assert {name: value for name, value in before._asdict().items() if name not in changed} == {
        name: value for name, value in after._asdict().items() if name not in changed
    }
    assert after.attributes & ~CODEC_MASK == before.attributes & ~CODEC_MASK
    assert list(records(stored)) == list(records(data))
    assert checked.header == after
    assert not checked.is_corrected
    reader = DefaultRecordBatch(bytearray(stored))
    assert reader.validate_crc()
    assert [one.value for one in reader] == [one.value for one in RECORDS]


def test_a_header_that_was_corrected_stays_so() -> None:
    sarama = bytearray(build_batch(RECORDS))
    sarama[35:43] = b"\xff" * 8
    sarama[17:21] = crc_of(memoryview(sarama)).to_bytes(4)
    stored, checked = again(bytes(sarama), Compression(Codec.ZSTD))
    assert parse_header(stored).max_timestamp == NOW_MS + 500
    assert not checked.is_corrected


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, -50, 19)]
)
def test_levels_count(codec: Codec, low: int, high: int) -> None:
    words = b" ".join(b"word%d" % (number * number % 977) for number in range(20_000))
    data = build_batch([Record(b"k", words, NOW_MS)])
    fast, _ = again(data, Compression(codec, low))
    small, _ = again(data, Compression(codec, high))
    assert len(small) < len(fast) < len(data)
    assert list(records(small)) == list(records(fast)) == list(records(data))


def test_what_has_become_too_large_is_refused() -> None:
    data = build_batch([Record(b"k", bytes(10_000), NOW_MS)], codec=Codec.ZSTD)
    plain = Compression(Codec.NONE)
    stored, _ = again(data, plain)
    again(data, plain, BatchLimits(batch_bytes_max=len(stored)))
    with pytest.raises(MessageTooLarge):
        again(data, plain, BatchLimits(batch_bytes_max=len(stored) - 1))
    with pytest.raises(MessageTooLarge):
        again(data, plain, BatchLimits(entry_bytes_max=len(stored) - 1))
    with pytest.raises(BatchTooLarge):
        again(data, plain, BatchLimits(segment_bytes=len(stored) - 1))


def test_which_batches_change() -> None:
    plain = memoryview(build_batch(RECORDS))
    packed = memoryview(build_batch(RECORDS, codec=Codec.LZ4))
    lz4, none = Compression(Codec.LZ4, 3), Compression(Codec.NONE)
    assert is_recompressed(plain, lz4) and is_recompressed(packed, none)
    assert not is_recompressed(packed, lz4) and not is_recompressed(plain, none)
    assert not is_recompressed(plain[:60], lz4)  # the check says what it is
