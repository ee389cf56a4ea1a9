"""Which produced batches are refused, and as what."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from broker.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
)
from broker.partition.core import batch_checks
from broker.partition.core.batch_checks import BatchLimits, check_batch, checking, takes_long
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import (
    BatchHeader,
    Codec,
    Record,
    build_batch,
    compress,
    pack_batch,
    parse_header,
)
from client.wire.steps import finish

NOW_MS = 1_700_000_000_000
LIMITS = BatchLimits()


def batch(count: int = 2, *, timestamp_ms: int = NOW_MS, **options: object) -> bytearray:
    made = [Record(b"k", b"v%d" % number, timestamp_ms) for number in range(count)]
    return bytearray(build_batch(made, **options))


def patch(data: bytearray, at: int, form: str, value: int) -> bytearray:
    """Change one field and make the checksum right again."""
    struct.pack_into(form, data, at, value)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def check(data: bytearray, limits: BatchLimits = LIMITS, **options: bool) -> object:
    return check_batch(memoryview(data), limits, NOW_MS, **options)


@pytest.mark.parametrize("codec", list(Codec))
def test_good_batches_pass(codec: Codec) -> None:
    header = check_batch(memoryview(batch(3, codec=codec)), LIMITS, NOW_MS).header
    assert header.record_count == 3


@pytest.mark.parametrize("size", [0, 8, 60])
def test_too_short(size: int) -> None:
    with pytest.raises(InvalidRecord):
        check(batch()[:size])


def test_other_magic() -> None:
    data = batch()
    data[16] = 1
    with pytest.raises(InvalidRecord, match="magic"):
        check(data)


def test_two_batches_are_not_one() -> None:
    with pytest.raises(InvalidRecord, match="its header says"):
        check(batch() + batch())


def test_length_field_too_large_or_small() -> None:
    for length in (-1, 5, 48, 10_000):
        data = batch()
        struct.pack_into(">i", data, 8, length)
        with pytest.raises(InvalidRecord):
            check(data)


def test_damaged_bytes_are_corrupt_not_invalid() -> None:
    data = batch()
    data[-1] ^= 0xFF
    with pytest.raises(CorruptBatch) as caught:
        check(data)
    assert caught.value.retriable


def test_topic_limit_counts_the_whole_compressed_batch() -> None:
    data = batch()
    assert check(data, BatchLimits(batch_bytes_max=len(data)))
    with pytest.raises(MessageTooLarge):
        check(data, BatchLimits(batch_bytes_max=len(data) - 1))


def test_entry_limit_binds_coordinators_too() -> None:
    data = batch()
    with pytest.raises(MessageTooLarge):
        check(data, BatchLimits(entry_bytes_max=len(data) - 1), from_client=False)
    check(data, BatchLimits(batch_bytes_max=1), from_client=False)


def test_larger_than_a_segment() -> None:
    with pytest.raises(BatchTooLarge):
        check(batch(), BatchLimits(segment_bytes=80))


@pytest.mark.parametrize(("count", "delta"), [(0, -1), (2, 0), (1, 1), (-1, -2), (2, 2)])
def test_count_and_delta_must_agree(count: int, delta: int) -> None:
    data = patch(patch(batch(), 57, ">i", count), 23, ">i", delta)
    with pytest.raises(InvalidRecord):
        check(data)


def test_clients_begin_at_offset_zero() -> None:
    with pytest.raises(InvalidRecord, match="base offset"):
        check(batch(base_offset=Offset(5)))


@pytest.mark.parametrize("bit", [0x20, 0x40])
def test_clients_may_not_set_broker_attributes(bit: int) -> None:
    with pytest.raises(InvalidRecord, match="attributes"):
        check(patch(batch(), 21, ">h", bit))


def test_clients_may_not_claim_log_append_time() -> None:
    with pytest.raises(InvalidTimestamp):
        check(patch(batch(), 21, ">h", 0x08))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(UnsupportedCompression):
        check(patch(batch(), 21, ">h", codec))


@pytest.mark.parametrize(("epoch", "sequence"), [(0, -1), (-1, 0)])
def test_idempotent_batches_need_epoch_and_sequence(epoch: int, sequence: int) -> None:
    with pytest.raises(InvalidRecord, match="producer 7"):
        check(batch(producer_id=ProducerId(7), producer_epoch=epoch, base_sequence=sequence))


def test_a_batch_of_a_transaction_has_a_producer() -> None:
    """It would be in no transaction that anybody could end."""
    with pytest.raises(InvalidRecord, match="producer id"):
        check(batch(transactional=True))
    check(batch(transactional=True, producer_id=ProducerId(7), producer_epoch=0, base_sequence=0))


def test_coordinators_may_write_control_batches() -> None:
    check(batch(1, control=True, transactional=True), from_client=False)


def test_timestamps_ahead() -> None:
    check(batch(timestamp_ms=NOW_MS + 3_600_000))
    with pytest.raises(InvalidTimestamp):
        check(batch(timestamp_ms=NOW_MS + 3_600_001))


def test_timestamps_behind() -> None:
    limits = BatchLimits(timestamp_before_max_ms=1000)
    check(batch(timestamp_ms=NOW_MS - 1000), limits)
    with pytest.raises(InvalidTimestamp):
        check(batch(timestamp_ms=NOW_MS - 1001), limits)


def test_no_timestamp_at_all_is_legal() -> None:
    check(batch(timestamp_ms=-1), BatchLimits(timestamp_before_max_ms=1000))


def test_broker_set_timestamps_make_the_producers_irrelevant() -> None:
    check(batch(timestamp_ms=NOW_MS + 10**9), BatchLimits(log_append_time=True))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_compacted_topics_need_keys(codec: Codec) -> None:
    limits = BatchLimits(keys_required=True)
    check(batch(3, codec=codec), limits)
    mixed = [Record(b"k", b"v", NOW_MS), Record(None, b"v", NOW_MS), Record(None, b"w", NOW_MS)]
    data = bytearray(build_batch(mixed, codec=codec))
    with pytest.raises(InvalidRecord) as caught:
        check(data, limits)
    assert caught.value.record_indexes == (1, 2)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_cannot_be_read_are_refused(codec: Codec) -> None:
    body = bytearray(batch(3)[61:])
    check(bytearray(pack_batch(header_of(3, codec), compress(codec, body))))
    body[0] = 0x7F
    with pytest.raises(InvalidRecord, match="record 0 of the batch") as caught:
        check(bytearray(pack_batch(header_of(3, codec), compress(codec, body))))
    assert caught.value.record_indexes == (0,)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_more_and_fewer_records_than_told_are_refused(codec: Codec, count: int) -> None:
    body = batch(3)[61:]
    with pytest.raises(InvalidRecord):
        check(bytearray(pack_batch(header_of(count, codec), compress(codec, body))))


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_garbage_under_a_compression_bit_is_refused(codec: Codec) -> None:
    with pytest.raises(InvalidRecord, match="(?i)" + codec.name):
        check(bytearray(pack_batch(header_of(3, codec), b"no such thing as records")))


def header_of(count: int, codec: Codec) -> BatchHeader:
    header = parse_header(batch(3))
    return header._replace(record_count=count, last_offset_delta=count - 1, attributes=int(codec))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("told", [-1, NOW_MS - 3_600_000, NOW_MS, NOW_MS + 50, 2**62])
def test_the_newest_timestamp_is_that_of_a_record(codec: Codec, told: int) -> None:
    """Whatever the header says: Sarama up to 1.45 says -1."""
    times = [NOW_MS, NOW_MS + 20, NOW_MS + 10]
    made = [Record(b"k", b"v", time) for time in times]
    data = patch(bytearray(build_batch(made, codec=codec)), 35, ">q", told)
    checked = check_batch(memoryview(data), LIMITS, NOW_MS)
    assert checked.header == parse_header(data)._replace(max_timestamp=NOW_MS + 20)
    assert checked.is_corrected
    right = patch(data, 35, ">q", NOW_MS + 20)
    assert check_batch(memoryview(right), LIMITS, NOW_MS).is_corrected is False


@pytest.mark.parametrize("told", [-1, NOW_MS])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_each_record_is_held_to_the_bounds(codec: Codec, told: int) -> None:
    """A header that says something else does not let it slip in."""
    made = [Record(b"k", b"v", NOW_MS + ahead) for ahead in (0, 3_600_001, 0, 9_999_999)]
    data = patch(bytearray(build_batch(made, codec=codec)), 35, ">q", told)
    with pytest.raises(InvalidTimestamp) as caught:
        check(data)
    assert caught.value.record_indexes == (1, 3)
    check(data, BatchLimits(log_append_time=True))


def test_a_far_base_timestamp_is_no_records_time() -> None:
    made = [Record(b"k", b"v", NOW_MS)]
    data = bytearray(build_batch(made))
    patch(data, 27, ">q", NOW_MS + 10**10)
    with pytest.raises(InvalidTimestamp):
        check(data)


def test_what_is_compressed_has_a_bound_on_records_and_on_bytes() -> None:
    many = batch(2_000, codec=Codec.ZSTD)
    view = memoryview(many)
    assert finish(checking(view, LIMITS, NOW_MS, 2_000)).header.record_count == 2_000
    with pytest.raises(MessageTooLarge, match="at most 1999"):
        finish(checking(view, LIMITS, NOW_MS, 1_999))
    honest = build_batch([Record(b"k", bytes(4_000_000), NOW_MS)], codec=Codec.ZSTD)
    assert check_batch(memoryview(honest), LIMITS, NOW_MS).body_bytes > 4_000_000
    bomb = build_batch([Record(b"k", bytes(5_000_000), NOW_MS)], codec=Codec.ZSTD)
    with pytest.raises(MessageTooLarge, match="more than"):
        check(bytearray(bomb))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_topic_bounds_the_records_of_compressed_batches(codec: Codec) -> None:
    """As Kafka 4.4 counts: without the length itself, and not in batches that are not compressed,
    which `max.message.bytes` bounds."""
    made = [Record(b"k", bytes(size), NOW_MS) for size in (10, 1_000, 20)]
    data = bytearray(build_batch(made, codec=codec))
    size = 1_000 + len(b"k") + 7  # attributes, two deltas, three lengths of which one has two bytes
    check(data, BatchLimits(inflated_record_bytes_max=size))
    if codec is Codec.NONE:
        check(data, BatchLimits(inflated_record_bytes_max=1))
        return
    with pytest.raises(InvalidRecord, match=f"record 1 of the batch has {size} bytes") as caught:
        check(data, BatchLimits(inflated_record_bytes_max=size - 1))
    assert caught.value.record_indexes == (1,)


def test_sizes_of_many_records_are_looked_at_in_steps() -> None:
    data = memoryview(batch(9_000, codec=Codec.ZSTD))
    whole = list(checking(data, LIMITS, NOW_MS))
    limits = BatchLimits(inflated_record_bytes_max=1_000)
    assert len(list(checking(data, limits, NOW_MS))) >= len(whole) + 2


def test_which_batches_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large, packed = batch(2), batch(3_000), batch(2, codec=Codec.LZ4)
    monkeypatch.setattr(batch_checks, "IS_COMPILED", True)
    assert [takes_long(memoryview(data)) for data in (small, large, packed)] == [False, False, True]
    monkeypatch.setattr(batch_checks, "IS_COMPILED", False)
    assert [takes_long(memoryview(data)) for data in (small, large, packed)] == [False, True, True]
    assert not takes_long(memoryview(b"short"))
