"""The records of `__consumer_offsets`, byte for byte as Kafka writes them.

A record is a (key, value) pair; each side starts
with an int16 version, and the key's version says what the record is about:

    key 0, 1  one committed offset   group, topic, partition int32
    key 2     a classic group        group

    offset value 4   as 3, but flexible: metadata is compact, and tagged fields follow: 0 is the
                     topic's id; 100 the same if the client gave the name and the broker the id
    offset value 3   offset int64, leader epoch int32, metadata, commit timestamp int64
    offset value 1   offset int64, metadata, commit timestamp int64, expire timestamp int64
    group value 3    protocol type, generation int32, protocol?, leader?, state timestamp int64,
                     members: [member id, instance id?, client id, client host,
                     rebalance timeout int32, session timeout int32, subscription, assignment]

Strings carry an int16 length (-1 is null), blobs an int32 length. A null value is a tombstone.
Written are key 1 with value 4 (value 1 only where an old client asked for its own retention) and
key 2 with value 3, so Kafka's own tools and UIs can read the topic; read are values 0 to 4, so
a topic copied from Kafka loads. Keys of groups of the consumer protocol, and of share groups,
are in `consumer_group_records`. Others belong to newer group protocols: readers skip them, as Kafka
does.

Tag 100 is our own, which Kafka's readers pass over. Kafka writes no id for clients that name the
topic; so what they have committed for a deleted topic applies to the one that has the name next.

Source: Kafka's OffsetCommitKey/Value and GroupMetadataKey/Value schemas.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.core.coordinator_types import CorruptCoordinatorRecord, LogRecord
from broker.groups.core import consumer_group_records
from broker.groups.core.consumer_group_records import (
    PARTS,
    SHARE_PARTS,
    ConsumerGroupEntry,
    Part,
    ShareGroupEntry,
)
from broker.groups.core.group_types import (
    NO_TOPIC_ID,
    CommittedOffset,
    GroupMetadata,
    MemberMetadata,
)
from client.wire.buffer import uvarint_bytes

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3

_FLEXIBLE_FROM: Final = 4
_TOPIC_ID_TAG: Final = 0
_NAMED_TOPIC_ID_TAG: Final = 100
_UUID_BYTES: Final = 16
_TAGS_MAX: Final = 100
_TOPIC_IDS_KEPT: Final = 1_000
"""Ids of topics that offsets share, instead of one object for each offset."""
_SHIFT_MAX: Final = 28
"""Of a varint's last byte: it has 32 bits at most."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


STRING_BYTES_MAX: Final = 0x7FFF
NAME_BYTES_MAX: Final = STRING_BYTES_MAX - 64
"""Longest name taken from a request: member ids are such a name and a suffix."""


class OffsetEntry(NamedTuple):
    """A decoded offset record; `committed` None removes the offset."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupEntry(NamedTuple):
    """A decoded group record; `metadata` None removes the group."""

    group_id: str
    metadata: GroupMetadata | None


class UnknownEntry(NamedTuple):
    """A record of a kind this version does not know; readers skip it."""

    key_version: int


Entry = OffsetEntry | GroupEntry | ConsumerGroupEntry | ShareGroupEntry | UnknownEntry


def offset_record(
    group_id: str, topic: str, partition: int, committed: CommittedOffset | None
) -> LogRecord:
    """Encode a commit, or with None its tombstone."""
    key = b"".join(
        (_INT16.pack(OFFSET_KEY_VERSION), _string(group_id), _string(topic), _INT32.pack(partition))
    )
    return LogRecord(key, None if committed is None else _offset_value(committed))


def group_record(group_id: str, metadata: GroupMetadata | None) -> LogRecord:
    """Encode a group's metadata, or with None its tombstone."""
    key = _INT16.pack(GROUP_KEY_VERSION) + _string(group_id)
    return LogRecord(key, None if metadata is None else _group_value(metadata))


def decode(key: bytes, value: bytes | None) -> Entry:
    """Decode one record. Raises CorruptCoordinatorRecord."""
    reader = _Reader(key)
    version = reader.int16()
    if version in (0, 1):
        group_id, topic, partition = reader.string(), reader.string(), reader.int32()
        reader.end()
        committed = None if value is None else _decode_offset(value)
        return OffsetEntry(group_id, topic, partition, committed)
    if version == GROUP_KEY_VERSION:
        group_id = reader.string()
        reader.end()
        return GroupEntry(group_id, None if value is None else _decode_group(value))
    if version in PARTS:
        return consumer_group_records.decode(Part(version), key, value)
    if version in SHARE_PARTS:
        return consumer_group_records.decode_share(version, key, value)
    if version < 0:
        raise CorruptCoordinatorRecord(f"key version {version}")
    return UnknownEntry(version)


def fits(name: str) -> bool:
    """Whether records can hold a name, and member ids made of it."""
    return len(name) <= NAME_BYTES_MAX and len(name.encode()) <= NAME_BYTES_MAX


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise CorruptCoordinatorRecord(f"string of {len(data)} bytes does not fit a record")
    return _INT16.pack(len(data)) + data


def _compact_string(text: str) -> bytes:
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise CorruptCoordinatorRecord(f"string of {len(data)} bytes does not fit a record")
    return uvarint_bytes(len(data) + 1) + data


def _blob(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _offset_value(committed: CommittedOffset) -> bytes:
    if committed.expire_ms >= 0:
        return b"".join(
            (
                _INT16.pack(OFFSET_VALUE_VERSION_WITH_EXPIRY),
                _INT64.pack(committed.offset),
                _string(committed.metadata),
                _INT64.pack(committed.commit_ms),
                _INT64.pack(committed.expire_ms),
            )
        )
    return b"".join(
        (
            _INT16.pack(OFFSET_VALUE_VERSION),
            _INT64.pack(committed.offset),
            _INT32.pack(committed.leader_epoch),
            _compact_string(committed.metadata),
            _INT64.pack(committed.commit_ms),
            _topic_id_tags(committed),
        )
    )


def _topic_id_tags(committed: CommittedOffset) -> bytes:
    if committed.topic_id == NO_TOPIC_ID:
        return b"\0"
    tag = _NAMED_TOPIC_ID_TAG if committed.is_named else _TOPIC_ID_TAG
    return bytes((1, tag, _UUID_BYTES)) + committed.topic_id.bytes


def _group_value(metadata: GroupMetadata) -> bytes:
    parts = [
        _INT16.pack(GROUP_VALUE_VERSION),
        _string(metadata.protocol_type),
        _INT32.pack(metadata.generation),
        _string(metadata.protocol),
        _string(metadata.leader),
        _INT64.pack(metadata.state_since_ms),
        _INT32.pack(len(metadata.members)),
    ]
    for member in metadata.members:
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _blob(member.subscription),
            _blob(member.assignment),
        )
    return b"".join(parts)


def _decode_offset(value: bytes) -> CommittedOffset:
    reader = _Reader(value)
    version = reader.int16()
    if not 0 <= version <= OFFSET_VALUE_VERSION:
        raise CorruptCoordinatorRecord(f"offset value version {version}")
    is_flexible = version >= _FLEXIBLE_FROM
    committed = CommittedOffset(
        offset=reader.int64(),
        leader_epoch=reader.int32() if version >= 3 else -1,
        metadata=reader.compact_string() if is_flexible else reader.string(),
        commit_ms=reader.int64(),
        expire_ms=reader.int64() if version == 1 else -1,
    )
    if is_flexible:
        tags = reader.tags()
        is_named = _NAMED_TOPIC_ID_TAG in tags
        data = tags.get(_NAMED_TOPIC_ID_TAG if is_named else _TOPIC_ID_TAG)
        if data is not None:
            committed = committed._replace(topic_id=_topic_id(data), is_named=is_named)
    reader.end()
    return committed


@lru_cache(maxsize=_TOPIC_IDS_KEPT)
def _topic_id(data: bytes) -> UUID:
    if len(data) != _UUID_BYTES:
        raise CorruptCoordinatorRecord(f"a topic id of {len(data)} bytes")
    return UUID(bytes=data)


def _decode_group(value: bytes) -> GroupMetadata:
    reader = _Reader(value)
    version = reader.int16()
    if not 0 <= version <= 3:
        raise CorruptCoordinatorRecord(f"group value version {version}")
    head = (reader.string(), reader.int32(), reader.nullable_string(), reader.nullable_string())
    state_since_ms = reader.int64() if version >= 2 else -1
    count = reader.int32()
    if not 0 <= count <= len(value):
        raise CorruptCoordinatorRecord(f"{count} members in {len(value)} bytes")
    members = tuple(_decode_member(reader, version) for _ in range(count))
    reader.end()
    return GroupMetadata(*head, state_since_ms, members)


def _decode_member(reader: _Reader, version: int) -> MemberMetadata:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    return MemberMetadata(
        member_id,
        instance_id,
        client_id,
        client_host,
        # Version 0 knew one timeout for both purposes.
        rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms,
        reader.blob(),
        reader.blob(),
    )


class _Reader:
    """Takes fields off a buffer; every read is bounds-checked."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        """Read an int16."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Read an int32."""
        return self._number(_INT32)

    def int64(self) -> int:
        """Read an int64."""
        return self._number(_INT64)

    def nullable_string(self) -> str | None:
        """Read a string with an int16 length, -1 being null."""
        size = self._number(_INT16)
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptCoordinatorRecord("a string is not UTF-8") from error

    def string(self) -> str:
        """Read a string that must not be null."""
        text = self.nullable_string()
        if text is None:
            raise CorruptCoordinatorRecord("null where a string must be")
        return text

    def blob(self) -> bytes:
        """Read bytes with an int32 length."""
        return self._take(self._number(_INT32))

    def compact_string(self) -> str:
        """Read a string with a varint length, which is one more than it is; 0 would be null."""
        size = self._uvarint() - 1
        if not 0 <= size <= STRING_BYTES_MAX:
            raise CorruptCoordinatorRecord(f"string of {size} bytes")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptCoordinatorRecord("a string is not UTF-8") from error

    def tags(self) -> dict[int, bytes]:
        """Read tagged fields: tag -> bytes."""
        count = self._uvarint()
        if count > _TAGS_MAX:
            raise CorruptCoordinatorRecord(f"{count} tagged fields")
        found = {}
        for _ in range(count):
            tag = self._uvarint()
            found[tag] = self._take(self._uvarint())
        return found

    def end(self) -> None:
        """Check that nothing is left."""
        if self._position != len(self._data):
            raise CorruptCoordinatorRecord("bytes after the last field")

    def _number(self, layout: struct.Struct) -> int:
        try:
            number: int = layout.unpack_from(self._data, self._position)[0]
        except struct.error as error:
            raise CorruptCoordinatorRecord("a number does not fit") from error
        self._position += layout.size
        return number

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > _SHIFT_MAX:
                raise CorruptCoordinatorRecord("a varint is too long")

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise CorruptCoordinatorRecord(f"field of {size} bytes does not fit")
        data = self._data[self._position : end]
        self._position = end
        return data
