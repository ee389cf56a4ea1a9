"""The records of `__transaction_state`, byte for byte as Kafka writes them, with tags of our own.

    key 0      transactional id

    value 0    producer id int64, epoch int16, timeout int32 (ms), state int8,
               partitions: [topic, [index int32]], or null in state Empty,
               last update int64 (ms), start int64 (ms)
    value 1    the same in the flexible encoding, then tagged fields:
               0 previous producer id int64     1 next producer id int64
               2 client's transaction version int16
               3 next producer epoch int16
               100 last epoch int16             102 number of the transaction int64
               101 topic ids: 16 bytes for each row of `partitions`

The key's strings and those of value 0 carry an int16 length, lists an int32 count (-1 is null); the
flexible encoding has both as unsigned varints of one more (0 is null). A null value is a tombstone.
Written is value 1, read are both. Tags that a reader does not know it passes over, so Kafka's tools
can read what we write. Two topics that had the same name one after the other have a row each.

Tag 100 lets the retry of an InitProducerId find its answer at another coordinator (Kafka forgets
it: KAFKA-20357); tag 101 keeps markers away from a topic that was created again.

A tombstone of the empty id, which no client may have, changes nothing (`PROOF`).

Source: Kafka's TransactionLogKey and TransactionLogValue schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.core.coordinator_types import CorruptCoordinatorRecord, LogRecord
from broker.transactions.core.transaction import (
    EPOCH_FENCED,
    EPOCH_LAST,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    TransactionVersion,
    in_order,
)
from client.errors import RemoteProtocolError
from client.ids import ProducerId
from client.wire.buffer import Reader, uvarint_bytes

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1

ID_BYTES_MAX: Final = 0x7FFF
"""Longest transactional id that a key can hold."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_UUID_BYTES: Final = 16

_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_VERSION: Final = 2
_NEXT_EPOCH: Final = 3
_LAST_EPOCH: Final = 100
_TOPIC_IDS: Final = 101
_NUMBER: Final = 102

_Row = tuple[str, UUID | None, list[int]]


class TransactionEntry(NamedTuple):
    """A decoded record; `metadata` None removes the id."""

    transactional_id: str
    metadata: TransactionMetadata | None


class UnknownEntry(NamedTuple):
    """A record of a kind this version does not know; readers skip it."""

    key_version: int


Entry = TransactionEntry | UnknownEntry


def transaction_record(transactional_id: str, metadata: TransactionMetadata | None) -> LogRecord:
    """Encode a transactional id, or with None its tombstone."""
    name = transactional_id.encode()
    assert len(name) <= ID_BYTES_MAX, "refused before"
    key = _INT16.pack(KEY_VERSION) + _INT16.pack(len(name)) + name
    return LogRecord(key, None if metadata is None else _value(metadata))


PROOF: Final = transaction_record("", None)
"""Removes an id that nobody can have: a coordinator appends it to learn whether it still is one."""


def decode(key: bytes, value: bytes | None) -> Entry:
    """Decode one record. Raises CorruptCoordinatorRecord."""
    try:
        reader = Reader(memoryview(key))
        version = reader.int16()
        if version < 0:
            raise CorruptCoordinatorRecord(f"key version {version}")
        if version > KEY_VERSION:
            return UnknownEntry(version)
        transactional_id = reader.string(compact=False)
        _end(reader)
        return TransactionEntry(transactional_id, None if value is None else _decode(value))
    except CorruptCoordinatorRecord:
        raise
    except RemoteProtocolError as error:
        raise CorruptCoordinatorRecord(str(error)) from error


# --- writing ----------------------------------------------------------------------------------


def _value(metadata: TransactionMetadata) -> bytes:
    rows = _rows(metadata.partitions)
    parts = [
        _HEAD.pack(
            VALUE_VERSION,
            metadata.producer_id,
            metadata.epoch,
            metadata.timeout_ms,
            metadata.state,
        )
    ]
    if metadata.state is TransactionState.EMPTY:
        parts.append(b"\x00")
    else:
        parts.append(uvarint_bytes(len(rows) + 1))
        for topic, _, indexes in rows:
            name = topic.encode()
            parts += (uvarint_bytes(len(name) + 1), name, uvarint_bytes(len(indexes) + 1))
            parts += (struct.pack(f">{len(indexes)}i", *indexes), b"\x00")
    parts.append(_TIMES.pack(metadata.updated_ms, metadata.start_ms))
    tags = list(_tags(metadata, rows))
    parts.append(uvarint_bytes(len(tags)))
    for tag, data in tags:
        parts += (uvarint_bytes(tag), uvarint_bytes(len(data)), data)
    return b"".join(parts)


def _rows(partitions: tuple[TransactionPartition, ...]) -> list[_Row]:
    """Return (topic, topic id, indexes) for each topic; `partitions` is sorted."""
    return [
        (topic, topic_id, [one.partition for one in group])
        for (topic, topic_id), group in groupby(partitions, lambda one: (one.topic, one.topic_id))
    ]


def _tags(metadata: TransactionMetadata, rows: list[_Row]) -> Iterator[tuple[int, bytes]]:
    """Yield the tagged fields that say more than their absence would, by tag."""
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        yield _PREVIOUS_PRODUCER_ID, _INT64.pack(metadata.previous_producer_id)
    if metadata.next_producer_id != NO_PRODUCER_ID:
        yield _NEXT_PRODUCER_ID, _INT64.pack(metadata.next_producer_id)
    if metadata.version:
        yield _VERSION, _INT16.pack(metadata.version)
    if metadata.next_epoch != NO_EPOCH:
        yield _NEXT_EPOCH, _INT16.pack(metadata.next_epoch)
    if metadata.last_epoch != NO_EPOCH:
        yield _LAST_EPOCH, _INT16.pack(metadata.last_epoch)
    if any(topic_id is not None for _, topic_id, _ in rows):
        none = bytes(_UUID_BYTES)
        yield _TOPIC_IDS, b"".join(none if one is None else one.bytes for _, one, _ in rows)
    if metadata.number:
        yield _NUMBER, _INT64.pack(metadata.number)


# --- reading ----------------------------------------------------------------------------------


def _decode(value: bytes) -> TransactionMetadata:
    reader = Reader(memoryview(value))
    version, producer_id, epoch, timeout_ms, state = reader.unpack(_HEAD)
    if not 0 <= version <= VALUE_VERSION:
        raise CorruptCoordinatorRecord(f"value version {version}")
    compact = version >= 1
    names: list[tuple[str, list[int]]] = []
    for _ in range(reader.count(compact=compact, item_bytes_min=2, nullable=True)):
        topic = reader.string(compact=compact)
        count = reader.count(compact=compact, item_bytes_min=_INT32.size)
        names.append((topic, [reader.int32() for _ in range(count)]))
        if compact:
            reader.skip_tags()
    updated_ms, start_ms = reader.unpack(_TIMES)
    tags = _decode_tags(reader) if compact else {}
    _end(reader)
    return TransactionMetadata(
        producer_id=ProducerId(producer_id),
        epoch=_epoch(epoch, state),
        timeout_ms=timeout_ms,
        state=TransactionState(state),
        partitions=_partitions(names, tags.get(_TOPIC_IDS)),
        updated_ms=updated_ms,
        start_ms=start_ms,
        previous_producer_id=ProducerId(_number(tags, _PREVIOUS_PRODUCER_ID, _INT64, -1)),
        next_producer_id=ProducerId(_number(tags, _NEXT_PRODUCER_ID, _INT64, -1)),
        version=_version(_number(tags, _VERSION, _INT16, 0)),
        next_epoch=_number(tags, _NEXT_EPOCH, _INT16, NO_EPOCH),
        last_epoch=_number(tags, _LAST_EPOCH, _INT16, NO_EPOCH),
        number=_number(tags, _NUMBER, _INT64, 0),
    )


def _epoch(epoch: int, state: int) -> int:
    """Check an epoch, and that the state is one that can be stored."""
    if not 0 <= state <= TransactionState.COMPLETE_ABORT:
        raise CorruptCoordinatorRecord(f"state {state}")
    # Only a fence goes above the last epoch that clients get.
    fences = state in PREPARED or state == TransactionState.COMPLETE_ABORT
    if not 0 <= epoch <= (EPOCH_FENCED if fences else EPOCH_LAST):
        raise CorruptCoordinatorRecord(f"epoch {epoch} in state {state}")
    return epoch


def _version(number: int) -> TransactionVersion:
    try:
        return TransactionVersion(number)
    except ValueError:
        raise CorruptCoordinatorRecord(f"transaction version {number}") from None


def _decode_tags(reader: Reader) -> Mapping[int, bytes]:
    found = {}
    for _ in range(reader.count_tags()):
        tag = reader.uvarint()
        found[tag] = bytes(reader.take(reader.uvarint()))
    return found


def _number(tags: Mapping[int, bytes], tag: int, layout: struct.Struct, absent: int) -> int:
    data = tags.get(tag)
    if data is None:
        return absent
    if len(data) != layout.size:
        raise CorruptCoordinatorRecord(f"tag {tag} has {len(data)} bytes")
    return int(layout.unpack(data)[0])


def _partitions(
    names: list[tuple[str, list[int]]], topic_ids: bytes | None
) -> tuple[TransactionPartition, ...]:
    if topic_ids is not None and len(topic_ids) != _UUID_BYTES * len(names):
        raise CorruptCoordinatorRecord(f"{len(topic_ids)} bytes of ids for {len(names)} topics")
    found: list[TransactionPartition] = []
    for at, (topic, indexes) in enumerate(names):
        topic_id = None
        if topic_ids is not None:
            data = topic_ids[at * _UUID_BYTES : (at + 1) * _UUID_BYTES]
            topic_id = UUID(bytes=data) if any(data) else None
        found += (TransactionPartition(topic, topic_id, index) for index in indexes)
    return in_order(found)


def _end(reader: Reader) -> None:
    if reader.remaining:
        raise CorruptCoordinatorRecord("bytes after the last field")
