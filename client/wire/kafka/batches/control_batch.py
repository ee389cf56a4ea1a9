"""The marker that ends a transaction in a partition: a control batch with one record.

Covers what is under a batch's control bit. Nothing of it is ever compressed.

    record key      version i16 (0), type i16: 0 abort, 1 commit
    record value    version i16 (0), coordinator epoch i32

The batch has the producer's id, the epoch that the transaction ends with, no sequence, and an
offset of its own, which consumers pass over. Later versions may append to key and value; the
fields above stay where they are. Source: KIP-98, section "Control Messages"; the 78 bytes are
those of Apache Kafka 4.3.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from client.errors import RemoteProtocolError
from client.ids import ProducerId
from client.wire.kafka.batches.records import (
    NO_PRODUCER,
    Buffer,
    Record,
    build_batch,
    parse_header,
    records,
)

MARKER_BYTES: Final = 78

_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class Marker(NamedTuple):
    """How a transaction of a producer ended, and by whose word."""

    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    """Leader epoch of the coordinator's partition."""


def build_marker(marker: Marker, timestamp_ms: int) -> bytes:
    """Return the batch of a marker, with base offset 0 and no leader epoch yet."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(key, value, timestamp_ms)],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: Buffer) -> Marker:
    """Read the marker out of a control batch.

    Raises RemoteProtocolError for a batch that is none, and for control records of other types.
    """
    header = parse_header(batch)
    if not header.is_control or not header.is_transactional or header.producer_id == NO_PRODUCER:
        raise RemoteProtocolError(f"attributes {header.attributes:#x} are not those of a marker")
    if header.record_count != 1:
        raise RemoteProtocolError(f"control batch of {header.record_count} records")
    (record,) = records(batch, size_max=len(batch))
    try:
        key_version, kind = _KEY.unpack_from(record.key or b"")
        value_version, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error:
        raise RemoteProtocolError("control record is too short for a marker") from None
    if kind not in (_ABORT, _COMMIT) or key_version < 0 or value_version < 0:
        raise RemoteProtocolError(f"control record of version {key_version}, type {kind}")
    return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch)
