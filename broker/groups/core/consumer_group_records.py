"""What the log keeps of consumer groups (KIP-848) and share groups (KIP-932), as Kafka writes it.

A key starts with an int16 that says what the record is about; in keys, strings carry an int16
length. A value starts with an int16 version, 0, and is flexible: compact lengths, tagged fields.

    key 3   a group                       group
            value: epoch int32; tag 0: hash of what the subscribed topics look like int64
    key 5   a member and what it wants    group, member id
            value: instance id?, rack id?, client id, client host, topic names, pattern?,
            rebalance timeout int32, assignor?
    key 6   the target assignment         group
            value: its epoch int32; tag 0: when it was made, int64
    key 7   a member's part of it         group, member id
            value: [topic id, partitions]
    key 8   what a member has             group, member id
            value: epoch int32, previous epoch int32, state int8, assigned partitions
            [topic id, partitions; tag 0: the epoch at which each was assigned], partitions that
            the member is to give up (the same)
    key 16  what a pattern matches        group, pattern
            value: topic names, version int64, timestamp int64

Of share groups, without what they do not have:

    key 10  a member                      rack id?, client id, client host, topic names
    key 11  a group                       epoch int32, hash int64; tag 100 is our own: incarnation
    key 12  the target assignment         as 6
    key 13  a member's part of it         as 7
    key 14  what a member has             epoch int32, previous epoch int32, state int8,
                                          [topic id, partitions]

A null value is a tombstone. Source: kafka-group-coordinator, ConsumerGroup*Key/Value and
ShareGroup*Key/Value.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.core.coordinator_types import CorruptCoordinatorRecord, LogRecord
from client.errors import RemoteProtocolError
from client.wire.buffer import Reader, uvarint_bytes

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; no topic without any."""
Held = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch at which it was assigned."""


NO_INCARNATION: Final = UUID(int=0)


class Part(enum.IntEnum):
    """What a record is about; the key's version."""

    GROUP = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    PATTERN = 16


class MemberState(enum.IntEnum):
    """How far a member has come on the way to its part of the target assignment."""

    STABLE = 0
    UNREVOKED = 1
    """It has to give partitions up first."""
    UNRELEASED = 2
    """Partitions it is to get still belong to others."""


class GroupEpoch(NamedTuple):
    """A group's epoch, which grows when members, subscriptions or topics change."""

    epoch: int
    topics_hash: int = 0
    incarnation: UUID = NO_INCARNATION
    """Of share groups: tells a group from an earlier one of its name."""


class Subscriber(NamedTuple):
    """A member, and what it wants."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None


class TargetEpoch(NamedTuple):
    """For which epoch of the group the target assignment was made, and when."""

    epoch: int
    made_ms: int = 0


class Current(NamedTuple):
    """What a member has."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Held
    revoking: Held

    def held_since(self, topic_id: UUID, index: int) -> int | None:
        """Return the epoch at which a partition was assigned that it has, or has to give up."""
        assigned, revoking = self.assigned.get(topic_id, {}), self.revoking.get(topic_id, {})
        return assigned.get(index, revoking.get(index))


class Matches(NamedTuple):
    """The topics that a pattern matches."""

    topics: tuple[str, ...]
    made_ms: int


PartValue = GroupEpoch | Subscriber | TargetEpoch | Partitions | Current | Matches


class ConsumerGroupEntry(NamedTuple):
    """A decoded record; `value` None removes it."""

    group_id: str
    part: Part
    name: str
    """A member id or a pattern; "" where there is only one."""
    value: PartValue | None


class ShareGroupEntry(NamedTuple):
    """A decoded record of a share group."""

    entry: ConsumerGroupEntry


PARTS: Final = frozenset(Part)
SHARE_PARTS: Final[Mapping[int, Part]] = {
    10: Part.MEMBER, 11: Part.GROUP, 12: Part.TARGET_EPOCH, 13: Part.TARGET, 14: Part.CURRENT,
}  # fmt: skip
"""What a record of a share group is about, by its key's version."""
_SHARE_KEYS: Final = {part: version for version, part in SHARE_PARTS.items()}
_NAMED: Final = frozenset((Part.MEMBER, Part.TARGET, Part.CURRENT, Part.PATTERN))
_VERSION: Final = 0
_TAG: Final = 0
_INCARNATION_TAG: Final = 100
_UUID_BYTES: Final = 16
_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


def encode(entry: ConsumerGroupEntry) -> LogRecord:
    """Return the record of an entry."""
    return _record(entry.part, entry, _encode_value)


def encode_share(entry: ConsumerGroupEntry) -> LogRecord:
    """Return the record of an entry of a share group."""
    return _record(_SHARE_KEYS[entry.part], entry, _encode_share_value)


def _record(
    key_version: int, entry: ConsumerGroupEntry, encode_value: Callable[[PartValue], bytes]
) -> LogRecord:
    key = _INT16.pack(key_version) + _key_string(entry.group_id)
    if entry.part in _NAMED:
        key += _key_string(entry.name)
    if entry.value is None:
        return LogRecord(key, None)
    return LogRecord(key, _INT16.pack(_VERSION) + encode_value(entry.value))


def decode(part: Part, key: bytes, value: bytes | None) -> ConsumerGroupEntry:
    """Decode a record whose key begins with `part`. Raises CorruptCoordinatorRecord."""
    return _decode(part, key, value, _DECODERS)


def decode_share(key_version: int, key: bytes, value: bytes | None) -> ShareGroupEntry:
    """Decode a record of a share group whose key begins with a version of `SHARE_PARTS`.

    Raises CorruptCoordinatorRecord.
    """
    return ShareGroupEntry(_decode(SHARE_PARTS[key_version], key, value, _SHARE_DECODERS))


def _decode(
    part: Part,
    key: bytes,
    value: bytes | None,
    decoders: Mapping[Part, Callable[[Reader], PartValue]],
) -> ConsumerGroupEntry:
    try:
        reader = Reader(memoryview(key), _INT16.size)
        group_id = reader.string(compact=False)
        name = reader.string(compact=False) if part in _NAMED else ""
        _check_end(reader)
        if value is None:
            return ConsumerGroupEntry(group_id, part, name, None)
        reader = Reader(memoryview(value))
        version = reader.int16()
        if version != _VERSION:
            raise CorruptCoordinatorRecord(f"{part.name} record of version {version}")
        decoded = decoders[part](reader)
        _check_end(reader)
    except CorruptCoordinatorRecord:
        raise
    except (RemoteProtocolError, ValueError) as error:
        raise CorruptCoordinatorRecord(f"{part.name} record: {error}") from error
    return ConsumerGroupEntry(group_id, part, name, decoded)


def _check_end(reader: Reader) -> None:
    if reader.remaining:
        raise CorruptCoordinatorRecord("bytes after the last field")


# --- writing --------------------------------------------------------------------------------


def _key_string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return uvarint_bytes(len(data) + 1) + data


def _strings(texts: Iterable[str]) -> bytes:
    parts = [_string(text) for text in texts]
    return uvarint_bytes(len(parts) + 1) + b"".join(parts)


def _numbers(numbers: Iterable[int]) -> bytes:
    parts = [_INT32.pack(number) for number in numbers]
    return uvarint_bytes(len(parts) + 1) + b"".join(parts)


def _tag(data: bytes, tag: int = _TAG) -> bytes:
    return bytes((1, tag)) + uvarint_bytes(len(data)) + data


def _partitions(partitions: Partitions | Held) -> bytes:
    """Topics and partitions in order, so that equal assignments are equal bytes."""
    parts = [uvarint_bytes(len(partitions) + 1)]
    for topic_id, indexes in sorted(partitions.items()):
        ordered = sorted(indexes)
        parts += (topic_id.bytes, _numbers(ordered))
        if isinstance(indexes, Mapping):
            parts.append(_tag(_numbers(indexes[index] for index in ordered)))
        else:
            parts.append(b"\0")
    return b"".join(parts)


def _encode_value(value: PartValue) -> bytes:
    match value:
        case GroupEpoch(epoch, topics_hash):
            tags = _tag(_INT64.pack(topics_hash)) if topics_hash else b"\0"
            return _INT32.pack(epoch) + tags
        case TargetEpoch(epoch, made_ms):
            tags = _tag(_INT64.pack(made_ms)) if made_ms else b"\0"
            return _INT32.pack(epoch) + tags
        case Subscriber():
            return b"".join(
                (
                    _string(value.instance_id),
                    _string(value.rack_id),
                    _string(value.client_id),
                    _string(value.client_host),
                    _strings(value.topics),
                    _string(value.pattern),
                    _INT32.pack(value.rebalance_timeout_ms),
                    _string(value.assignor),
                    b"\0",
                )
            )
        case Current(epoch, previous_epoch, state, assigned, revoking):
            head = _INT32.pack(epoch) + _INT32.pack(previous_epoch) + _INT8.pack(state)
            return head + _partitions(assigned) + _partitions(revoking) + b"\0"
        case Matches(topics, made_ms):
            return _strings(topics) + _INT64.pack(_VERSION) + _INT64.pack(made_ms) + b"\0"
    return _partitions(value) + b"\0"


def _encode_share_value(value: PartValue) -> bytes:
    match value:
        case GroupEpoch(epoch, topics_hash, incarnation):
            tag = _tag(incarnation.bytes, _INCARNATION_TAG)
            return _INT32.pack(epoch) + _INT64.pack(topics_hash) + tag
        case Subscriber():
            client = _string(value.client_id) + _string(value.client_host)
            return _string(value.rack_id) + client + _strings(value.topics) + b"\0"
        case Current(epoch, previous_epoch, state, assigned, _):
            head = _INT32.pack(epoch) + _INT32.pack(previous_epoch) + _INT8.pack(state)
            return head + _partitions(_indexes(assigned)) + b"\0"
    return _encode_value(value)


def _indexes(held: Held) -> Partitions:
    return {topic_id: frozenset(indexes) for topic_id, indexes in held.items()}


# --- reading --------------------------------------------------------------------------------


def _read_tag(reader: Reader, known: int = _TAG) -> Reader | None:
    """Return the contents of the one tagged field that we know; others are passed over."""
    found = None
    for _ in range(reader.count_tags()):
        tag = reader.uvarint()
        data = reader.take(reader.uvarint())
        if tag == known:
            found = Reader(data)
    return found


def _read_numbers(reader: Reader) -> list[int]:
    count = reader.count(compact=True, item_bytes_min=_INT32.size)
    return [reader.int32() for _ in range(count)]


def _read_strings(reader: Reader) -> tuple[str, ...]:
    count = reader.count(compact=True, item_bytes_min=1)
    return tuple(reader.string(compact=True) for _ in range(count))


def _read_held(reader: Reader) -> dict[UUID, dict[int, int]]:
    """Read partitions; without the tag that says at which epoch, they count as assigned at 0."""
    found: dict[UUID, dict[int, int]] = {}
    for _ in range(reader.count(compact=True, item_bytes_min=_UUID_BYTES + 2)):
        topic_id = UUID(bytes=bytes(reader.take(_UUID_BYTES)))
        indexes = _read_numbers(reader)
        tag = _read_tag(reader)
        epochs = [0] * len(indexes) if tag is None else _read_numbers(tag)
        if len(epochs) != len(indexes):
            raise CorruptCoordinatorRecord(f"{len(epochs)} epochs of {len(indexes)} partitions")
        found[topic_id] = dict(zip(indexes, epochs, strict=True))
    return found


def _read_partitions(reader: Reader) -> dict[UUID, frozenset[int]]:
    return {topic_id: frozenset(indexes) for topic_id, indexes in _read_held(reader).items()}


def _read_group(reader: Reader) -> GroupEpoch:
    epoch, tag = reader.int32(), _read_tag(reader)
    return GroupEpoch(epoch, 0 if tag is None else tag.int64())


def _read_target_epoch(reader: Reader) -> TargetEpoch:
    epoch, tag = reader.int32(), _read_tag(reader)
    return TargetEpoch(epoch, 0 if tag is None else tag.int64())


def _read_subscriber(reader: Reader) -> Subscriber:
    value = Subscriber(
        instance_id=reader.nullable_string(compact=True),
        rack_id=reader.nullable_string(compact=True),
        client_id=reader.string(compact=True),
        client_host=reader.string(compact=True),
        topics=_read_strings(reader),
        pattern=reader.nullable_string(compact=True) or None,
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.nullable_string(compact=True),
    )
    reader.skip_tags()
    return value


def _read_target(reader: Reader) -> dict[UUID, frozenset[int]]:
    value = _read_partitions(reader)
    reader.skip_tags()
    return value


def _read_current(reader: Reader) -> Current:
    value = Current(
        reader.int32(),
        reader.int32(),
        MemberState(reader.int8()),
        _read_held(reader),
        _read_held(reader),
    )
    reader.skip_tags()
    return value


def _read_matches(reader: Reader) -> Matches:
    topics = _read_strings(reader)
    reader.int64()  # the version of Kafka's metadata image
    value = Matches(topics, reader.int64())
    reader.skip_tags()
    return value


_DECODERS: Final[Mapping[Part, Callable[[Reader], PartValue]]] = {
    Part.GROUP: _read_group,
    Part.MEMBER: _read_subscriber,
    Part.TARGET_EPOCH: _read_target_epoch,
    Part.TARGET: _read_target,
    Part.CURRENT: _read_current,
    Part.PATTERN: _read_matches,
}


def _read_share_group(reader: Reader) -> GroupEpoch:
    epoch, topics_hash = reader.int32(), reader.int64()
    tag = _read_tag(reader, _INCARNATION_TAG)
    incarnation = NO_INCARNATION if tag is None else UUID(bytes=bytes(tag.take(_UUID_BYTES)))
    return GroupEpoch(epoch, topics_hash, incarnation)


def _read_share_member(reader: Reader) -> Subscriber:
    rack_id = reader.nullable_string(compact=True)
    client_id, client_host = reader.string(compact=True), reader.string(compact=True)
    topics = _read_strings(reader)
    reader.skip_tags()
    return Subscriber(None, rack_id, client_id, client_host, topics, None, 0, None)


def _read_share_current(reader: Reader) -> Current:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), MemberState(reader.int8())
    assigned = _read_held(reader)
    reader.skip_tags()
    return Current(epoch, previous_epoch, state, assigned, {})


_SHARE_DECODERS: Final[Mapping[Part, Callable[[Reader], PartValue]]] = {
    Part.GROUP: _read_share_group,
    Part.MEMBER: _read_share_member,
    Part.TARGET_EPOCH: _read_target_epoch,
    Part.TARGET: _read_target,
    Part.CURRENT: _read_share_current,
}
