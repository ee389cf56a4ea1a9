"""Checks whether a produced batch may be appended, by the rules that need no other state.

Every record is read (`records.py`), inflated if it is compressed: what is stored can be read
by every consumer, and the header's newest timestamp is that of a record, whatever the
producer wrote there. Sarama up to 1.45 leaves it at -1, which no search by time and no retention
would ever have found. As in Kafka (LogValidator), such a header is corrected, and everything else
that does not fit is refused.

What that costs is bounded. A batch is inflated to a hundredfold at most, within limits for tiny and
for huge ones, and has a bounded number of records for its bytes; beyond that it is refused with
MESSAGE_TOO_LARGE, which makes Java's producer split it. Small or plain batches are read at once
(`check_batch`), others in steps (`checking`): a kilobyte can hold a hundred thousand records.

A topic may bound the records of compressed batches (`max.decompressed.message.bytes`); what is not
compressed is bounded by the size of its batch. Records that were stored before the bound was
lowered stay readable, can be searched by time, and are compacted, where Kafka would fail.

Order: cheap checks first, then the checksum, then the fields that it covers, then the records. So a
batch that was damaged in transit is distinguished from one that was invalid from the start.

A batch that was checked may be compressed anew, as its topic wants it (`compression.type`). Only
the codec changes: records, their offsets and times, the producer's fields and the marks of
transactions stay, so a retry is still recognised, whatever it comes compressed with. The level of a
batch that has the right codec already is not looked at. Sizes are judged twice: of the batch as it
comes, before it is opened, and of what would be stored. A batch that has become too large gets
MESSAGE_TOO_LARGE as well.

Source: Kafka's LogValidator.
"""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
)
from client.errors import InflatesTooMuch, RemoteProtocolError
from client.fast_tuple import new_tuple
from client.wire.kafka.batches.record_scan import cautious_records_max, first_larger
from client.wire.kafka.batches.records import (
    CODEC_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    IS_COMPILED,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    RECORD_BYTES_MIN,
    TIME_MAX,
    TIME_MIN,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    Compression,
    Fault,
    RecordFacts,
    compress,
    decompress,
    fault_text,
    pack_batch,
    parse_header,
    read_records,
    read_slowly,
)
from client.wire.steps import STEP_RECORDS, Steps, finish

_INFLATED_AT_ONCE: Final = 4 << 20
"""What is inflated without a pause, in some milliseconds: more than nearly every batch holds."""
_INFLATED_BYTES: Final = _INFLATED_AT_ONCE, 16 << 20
_INFLATED_RATIO: Final = 100
RECORDS_UNLIMITED: Final = 1 << 31
_CODEC_MAX: Final = int(max(Codec))
_PLAIN: Final = int(Codec.NONE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of a topic; sizes are of whole batches including the header."""

    batch_bytes_max: int = 1_048_588
    entry_bytes_max: int = 5_000_000
    """Limit of a ledger entry, whatever the topic allows."""
    segment_bytes: int = 1 << 30
    timestamp_before_max_ms: int = (1 << 63) - 1
    timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False
    keys_required: bool = False
    compression: Compression | None = None
    """How batches are stored; None: as they come."""
    inflated_record_bytes_max: int = DECOMPRESSED_BYTES_MAX
    """Limit of a record of a compressed batch."""


class CheckedBatch(NamedTuple):
    """A batch that may be appended."""

    header: BatchHeader
    """As it is to be stored."""
    is_corrected: bool
    """Whether that is not what the producer sent: then its CRC has to be computed anew."""
    body_bytes: int = 0
    """Size of the records that were read, inflated."""


def check_batch(
    batch: memoryview, limits: BatchLimits, now_ms: int, *, from_client: bool = True
) -> CheckedBatch:
    """Check one batch, without a pause; see `takes_long`.

    A coordinator's own batch (`from_client` false) only needs the right structure. Raises the
    `InvalidRecord` family; nothing was applied.
    """
    if not from_client:
        return CheckedBatch(check_header(batch, limits, from_client=False), False)
    if takes_long(batch):
        return finish(checking(batch, limits, now_ms))
    header = check_header(batch, limits)
    oldest_ms, latest_ms = _time_bounds(limits, now_ms)
    facts = read_records(
        batch, HEADER_BYTES, header.record_count, header.base_timestamp,
        oldest_ms, latest_ms, limits.keys_required,
    )  # fmt: skip
    return _judged(header, facts, len(batch) - HEADER_BYTES)


def takes_long(batch: memoryview) -> bool:
    """Whether a batch should be checked in steps: it is compressed, or read in Python and large."""
    if len(batch) < HEADER_BYTES:
        return False
    if batch[CODEC_AT] & CODEC_MASK != _PLAIN:
        return True
    return not IS_COMPILED and len(batch) > STEP_RECORDS * RECORD_BYTES_MIN


def checking(
    batch: memoryview, limits: BatchLimits, now_ms: int, compressed_max: int = RECORDS_UNLIMITED
) -> Steps[CheckedBatch]:
    """Do as `check_batch` with a client's batch, in steps.

    `compressed_max`: of the records of a compressed batch; above it MessageTooLarge is raised.
    """
    header = check_header(batch, limits)
    body, at = batch, HEADER_BYTES
    if header.attributes & CODEC_MASK != _PLAIN:
        body, at = (yield from _inflated(batch, header, compressed_max)), 0
    oldest_ms, latest_ms = _time_bounds(limits, now_ms)
    terms = oldest_ms, latest_ms, limits.keys_required
    if IS_COMPILED:
        facts = read_records(body, at, header.record_count, header.base_timestamp, *terms)
    else:
        facts = yield from read_slowly(body, at, header.record_count, header.base_timestamp, *terms)
    checked = _judged(header, facts, len(body) - at)
    if at == 0 and len(body) > limits.inflated_record_bytes_max:
        yield from _check_sizes(body, header.record_count, limits.inflated_record_bytes_max)
    return checked


def check_header(
    batch: memoryview, limits: BatchLimits, *, from_client: bool = True
) -> BatchHeader:
    """Check all of a batch but its records; return its header. Raises as `check_batch`."""
    try:
        header = parse_header(batch)
    except RemoteProtocolError as error:
        raise InvalidRecord(str(error)) from error
    size = header.size
    if header.magic != MAGIC:
        raise InvalidRecord(f"record batch has magic {header.magic}; only magic 2 is accepted")
    if size < HEADER_BYTES or size != len(batch):
        raise InvalidRecord(f"record batch has {len(batch)} bytes, its header says {size}")
    size_max = limits.entry_bytes_max
    if from_client:
        size_max = limits.batch_bytes_max if limits.batch_bytes_max < size_max else size_max
    if size > size_max or size > limits.segment_bytes:
        raise too_large(size, size_max, limits)
    if from_client:
        if crc32c(batch[CRC_START:]) != header.crc:
            raise CorruptBatch("record batch does not match its CRC")
        _check_client_fields(header)
    _check_count(header, size)
    return header


def too_large(size: int, size_max: int, limits: BatchLimits) -> BatchTooLarge | MessageTooLarge:
    """Return the error for a batch that is larger than a segment, or than `size_max`."""
    if size > limits.segment_bytes:
        return BatchTooLarge(
            f"record batch of {size} bytes is larger than segment.bytes ({limits.segment_bytes})"
        )
    return MessageTooLarge(f"record batch has {size} bytes; at most {size_max} are allowed")


def is_recompressed(batch: memoryview, wanted: Compression) -> bool:
    """Whether a batch is to be stored with another codec than it has."""
    return len(batch) >= HEADER_BYTES and batch[CODEC_AT] & CODEC_MASK != wanted.codec


def recompressed(
    batch: memoryview, checked: CheckedBatch, wanted: Compression, limits: BatchLimits
) -> tuple[bytes, CheckedBatch]:
    """Return a batch that was checked in its new form. It takes a while, and needs no event loop.

    Raises MessageTooLarge, BatchTooLarge.
    """
    header = checked.header
    codec = Codec(header.attributes & CODEC_MASK)
    body = decompress(codec, batch[HEADER_BYTES:], checked.body_bytes)
    packed = compress(wanted.codec, body, wanted.level)
    size = HEADER_BYTES + len(packed)
    size_max = min(limits.batch_bytes_max, limits.entry_bytes_max)
    if size > size_max or size > limits.segment_bytes:
        raise too_large(size, size_max, limits)
    attributes = header.attributes & ~CODEC_MASK | wanted.codec
    stored = pack_batch(header._replace(attributes=attributes), packed)
    return stored, CheckedBatch(parse_header(stored), False, checked.body_bytes)


def _judged(header: BatchHeader, facts: RecordFacts, body_bytes: int) -> CheckedBatch:
    if facts.fault:
        kind = InvalidTimestamp if facts.fault == Fault.BAD_TIME else InvalidRecord
        raise kind(fault_text(facts), record_indexes=(facts.record,))
    if facts.mistimed:
        raise InvalidTimestamp(
            "records have timestamps too far from the broker's time",
            record_indexes=facts.mistimed,
        )
    if facts.keyless:
        raise InvalidRecord("records of a compacted topic need keys", record_indexes=facts.keyless)
    newest_ms = facts.newest_ms
    is_corrected = newest_ms != header.max_timestamp
    if is_corrected:
        header = header._replace(max_timestamp=newest_ms)
    checked: CheckedBatch = new_tuple(CheckedBatch, (header, is_corrected, body_bytes))
    return checked


def _time_bounds(limits: BatchLimits, now_ms: int) -> tuple[int, int]:
    """Return the oldest and the latest timestamp that records may have."""
    if limits.log_append_time:
        return TIME_MIN, TIME_MAX
    oldest_ms = now_ms - limits.timestamp_before_max_ms
    latest_ms = now_ms + limits.timestamp_after_max_ms
    return max(oldest_ms, TIME_MIN), min(latest_ms, TIME_MAX)


def _inflated(batch: memoryview, header: BatchHeader, records_max: int) -> Steps[memoryview]:
    """Return the records of a compressed batch."""
    count_max = min(records_max, cautious_records_max(header.size))
    if header.record_count > count_max:
        raise MessageTooLarge(
            f"compressed record batch of {header.size} bytes has {header.record_count} records; at"
            f" most {count_max} are read in a batch of that size, or are left for this request"
        )
    codec = Codec(header.attributes & CODEC_MASK)
    data = batch[HEADER_BYTES:]
    try:
        try:
            return memoryview(decompress(codec, data, _INFLATED_AT_ONCE))
        except InflatesTooMuch:
            yield
        least, most = _INFLATED_BYTES
        body = memoryview(
            decompress(codec, data, min(most, max(least, _INFLATED_RATIO * header.size)))
        )
    except InflatesTooMuch as error:
        raise MessageTooLarge(f"record batch of {header.size} bytes: {error}") from error
    except RemoteProtocolError as error:
        raise InvalidRecord(str(error)) from error
    yield
    return body


def _check_sizes(body: memoryview, count: int, size_max: int) -> Steps[None]:
    found = yield from first_larger(body, count, size_max)
    if found is not None:
        index, size = found
        raise InvalidRecord(
            f"record {index} of the batch has {size} bytes, decompressed; at most {size_max} are"
            " allowed (max.decompressed.message.bytes)",
            record_indexes=(index,),
        )


def _check_count(header: BatchHeader, size: int) -> None:
    count = header.record_count
    if count <= 0 or header.last_offset_delta + 1 != count:
        raise InvalidRecord(
            f"record batch has a record count of {count} and a last offset delta of"
            f" {header.last_offset_delta}"
        )
    is_plain = header.attributes & CODEC_MASK == _PLAIN
    room = size - HEADER_BYTES if is_plain else DECOMPRESSED_BYTES_MAX
    if count * RECORD_BYTES_MIN > room:
        raise InvalidRecord(f"record batch of {size} bytes cannot hold {count} records")


def _check_client_fields(header: BatchHeader) -> None:
    attributes = header.attributes
    if header.base_offset != 0:
        raise InvalidRecord(
            f"the base offset of a produced batch must be 0, not {header.base_offset}"
        )
    if attributes & (CONTROL_BIT | DELETE_HORIZON_BIT):
        raise InvalidRecord(f"clients must not set attributes {attributes:#x}")
    if attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestamp("clients must not set timestamp type LogAppendTime")
    if attributes & CODEC_MASK > _CODEC_MAX:
        raise UnsupportedCompression(f"unknown compression codec {attributes & CODEC_MASK}")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise InvalidRecord(
                f"producer {header.producer_id} sent sequence {header.base_sequence}"
                f" in epoch {header.producer_epoch}"
            )
    elif attributes & TRANSACTIONAL_BIT:
        raise InvalidRecord("a transactional batch must have a producer id")
