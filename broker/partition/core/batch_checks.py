"""Checks whether a produced batch may be appended: all rules that need no other state.

The rules look at the 61-byte header and the checksum. Records are decoded only for compacted
topics, where each needs a key: in steps (`key_check`), because a kilobyte can hold a hundred
thousand of them. For batches that are not decoded, the producer's record count and timestamps are
trusted, except that as many records must fit into the batch.

Order: cheap checks first, then the checksum, then the fields that it covers. So a batch that was
damaged in transit is distinguished from one that was invalid from the start.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from crc32c import crc32c

from broker.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
)
from client.errors import RemoteProtocolError
from client.wire.kafka.batches.record_builder import DECOMPRESSED_BYTES_MAX, RECORD_BYTES_MIN
from client.wire.kafka.batches.record_scan import cautious_records_max, keyless
from client.wire.kafka.batches.records import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    parse_header,
)
from client.wire.steps import Steps, finish

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


def check_batch(
    batch: memoryview,
    limits: BatchLimits,
    now_ms: int,
    *,
    from_client: bool = True,
    are_keys_checked: bool = False,
) -> BatchHeader:
    """Check one batch and return its header.

    A coordinator's own batch (`from_client` false) only needs the right structure.
    `are_keys_checked`: it has passed `key_check`. Raises the `InvalidRecord` family; nothing was
    applied.
    """
    try:
        header = parse_header(batch)
    except RemoteProtocolError as error:
        raise InvalidRecord(str(error)) from error
    size = header.size
    if header.magic != MAGIC:
        raise InvalidRecord(f"record batch has magic {header.magic}; only magic 2 is accepted")
    if size < HEADER_BYTES or size != len(batch):
        raise InvalidRecord(f"record batch has {len(batch)} bytes, its header says {size}")
    if size > limits.segment_bytes:
        raise BatchTooLarge(
            f"record batch of {size} bytes is larger than segment.bytes ({limits.segment_bytes})"
        )
    size_max = limits.entry_bytes_max
    if from_client:
        size_max = limits.batch_bytes_max if limits.batch_bytes_max < size_max else size_max
    if size > size_max:
        raise MessageTooLarge(f"record batch has {size} bytes; at most {size_max} are allowed")
    if from_client:
        if crc32c(batch[CRC_START:]) != header.crc:
            raise CorruptBatch("record batch does not match its CRC")
        _check_client_fields(header, limits, now_ms)
    _check_count(header, size)
    if from_client and limits.keys_required and not are_keys_checked:
        finish(_check_keys(batch, header))
    return header


def key_check(batch: memoryview, limits: BatchLimits, now_ms: int) -> Steps[int]:
    """Check a client's batch completely, the keys of its records in steps; return how many records
    were decoded.

    Does nothing for topics whose records need no keys. Raises as `check_batch`.
    """
    if not limits.keys_required:
        return 0
    header = check_batch(batch, limits, now_ms, are_keys_checked=True)
    yield from _check_keys(batch, header)
    return header.record_count


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


def _check_client_fields(header: BatchHeader, limits: BatchLimits, now_ms: int) -> None:
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
    if limits.log_append_time:
        return
    newest, oldest = header.max_timestamp, header.base_timestamp
    if newest < oldest:
        oldest = newest
    if newest - now_ms > limits.timestamp_after_max_ms:
        raise InvalidTimestamp(f"timestamp {newest} is too far ahead of {now_ms}")
    if oldest != NO_TIMESTAMP and now_ms - oldest > limits.timestamp_before_max_ms:
        raise InvalidTimestamp(f"timestamp {oldest} is too far behind {now_ms}")


def _check_keys(batch: memoryview, header: BatchHeader) -> Steps[None]:
    count_max = cautious_records_max(header.size)
    if header.record_count > count_max:
        # Java's producer splits a batch that gets this error, and sends the halves.
        raise MessageTooLarge(
            f"record batch of {header.size} bytes has {header.record_count} records; a compacted"
            f" topic accepts at most {count_max} in a batch of that size"
        )
    try:
        found = yield from keyless(batch)
    except RemoteProtocolError as error:
        raise InvalidRecord(str(error)) from error
    if found:
        raise InvalidRecord("records of a compacted topic need keys", record_indexes=found)
