"""Bytes of `__consumer_offsets`: recorded layouts, older versions, damage."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from broker.coordinator.core.coordinator_types import CorruptCoordinatorRecord
from broker.groups.core.group_types import (
    NO_TOPIC_ID,
    CommittedOffset,
    GroupMetadata,
    MemberMetadata,
)
from broker.groups.core.offset_records import (
    GroupEntry,
    OffsetEntry,
    UnknownEntry,
    decode,
    group_record,
    offset_record,
)

MEMBER = MemberMetadata("m-1", "i", "cl", "/127.0.0.1", 60_000, 10_000, b"sub", b"asg")
METADATA = GroupMetadata("consumer", 7, "range", "m-1", 1234, (MEMBER,))
OFFSET = CommittedOffset(42, 3, "meta", 1_700_000_000_000, -1)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def test_offset_record_bytes() -> None:
    record = offset_record("g", "topic", 5, OFFSET)
    assert record.key == bytes.fromhex("00010001670005") + b"topic" + bytes([0, 0, 0, 5])
    moment = struct.pack(">q", 1_700_000_000_000)
    assert record.value == struct.pack(">hqi", 4, 42, 3) + b"\x05meta" + moment + b"\0"
    assert decode(*record) == OffsetEntry("g", "topic", 5, OFFSET)


def test_offset_record_bytes_with_a_topic_id() -> None:
    """As Kafka 4.3.1 writes it for OffsetCommit 10."""
    topic_id = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
    recorded = bytes.fromhex(
        "0004000000000000000500000002046dc3a900000000000000630100100102030405060708090a0b0c0d0e0f10"
    )
    committed = CommittedOffset(5, 2, "mé", 99, -1, topic_id)
    record = offset_record("g", "t", 0, committed)
    assert record.value == recorded
    assert decode(*record) == OffsetEntry("g", "t", 0, committed)
    without = bytes.fromhex("0004000000000000000500000002046dc3a9000000000000006300")
    assert decode(record.key, without) == OffsetEntry(
        "g", "t", 0, committed._replace(topic_id=NO_TOPIC_ID)
    )


def test_a_name_that_the_broker_found_the_id_of_has_a_tag_of_its_own() -> None:
    committed = OFFSET._replace(topic_id=UUID(int=7), is_named=True)
    record = offset_record("g", "t", 0, committed)
    assert record.value is not None
    assert record.value.endswith(b"\x01\x64\x10" + UUID(int=7).bytes)
    assert decode(*record) == OffsetEntry("g", "t", 0, committed)


def test_tags_of_others_are_passed_over() -> None:
    key, value = offset_record("g", "t", 0, OFFSET)
    assert value is not None
    more = value[:-1] + b"\x02\x05\x03abc\x81\x01\x00"
    assert decode(key, more) == OffsetEntry("g", "t", 0, OFFSET)


@pytest.mark.parametrize(
    "tags",
    [b"\x01\x00\x0f" + bytes(15), b"\x7f" + b"\x05\x00" * 127, b"\x80" * 6, b"\x01\x00\x7f"],
)
def test_damaged_tags(tags: bytes) -> None:
    key, value = offset_record("g", "t", 0, OFFSET)
    assert value is not None
    with pytest.raises(CorruptCoordinatorRecord):
        decode(key, value[:-1] + tags)


def test_offset_with_its_own_expiry_is_version_1() -> None:
    committed = CommittedOffset(42, -1, "", 10, 99)
    record = offset_record("g", "t", 0, committed)
    assert record.value == struct.pack(">hq", 1, 42) + string("") + struct.pack(">qq", 10, 99)
    assert decode(*record) == OffsetEntry("g", "t", 0, committed)


def test_group_record_bytes() -> None:
    record = group_record("g", METADATA)
    assert record.key == b"\0\2\0\1g"
    assert record.value == b"".join(
        (
            b"\0\3",
            string("consumer"),
            struct.pack(">i", 7),
            string("range"),
            string("m-1"),
            struct.pack(">q", 1234),
            struct.pack(">i", 1),
            string("m-1"),
            string("i"),
            string("cl"),
            string("/127.0.0.1"),
            struct.pack(">ii", 60_000, 10_000),
            struct.pack(">i", 3) + b"sub",
            struct.pack(">i", 3) + b"asg",
        )
    )
    assert decode(*record) == GroupEntry("g", METADATA)


def test_nulls_round_trip() -> None:
    metadata = GroupMetadata("", 0, None, None, -1, (MEMBER._replace(instance_id=None),))
    assert decode(*group_record("", metadata)) == GroupEntry("", metadata)


def test_tombstones() -> None:
    assert decode(*offset_record("g", "t", 1, None)) == OffsetEntry("g", "t", 1, None)
    assert decode(*group_record("g", None)) == GroupEntry("g", None)


def test_text_of_every_kind_round_trips() -> None:
    record = offset_record("grüppe/☃", "t", 0, OFFSET._replace(metadata="\x00 ☃"))
    assert decode(*record) == OffsetEntry("grüppe/☃", "t", 0, OFFSET._replace(metadata="\x00 ☃"))


def test_offset_values_of_version_3() -> None:
    value = struct.pack(">hqi", 3, 9, 6) + string("m") + struct.pack(">q", 5)
    key = b"\0\0\0\1g\0\1t\0\0\0\1"
    assert decode(key, value) == OffsetEntry("g", "t", 1, CommittedOffset(9, 6, "m", 5, -1))


@pytest.mark.parametrize("version", [0, 2])
def test_older_offset_values(version: int) -> None:
    value = struct.pack(">hq", version, 9) + string("m") + struct.pack(">q", 5)
    key = b"\0\0\0\1g\0\1t\0\0\0\1"
    assert decode(key, value) == OffsetEntry("g", "t", 1, CommittedOffset(9, -1, "m", 5, -1))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_group_values(version: int) -> None:
    value = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 2)
    value += string("range") + string("m")
    value += struct.pack(">q", 77) if version >= 2 else b""
    value += struct.pack(">i", 1) + string("m") + string("c") + string("h")
    value += struct.pack(">i", 60_000) if version >= 1 else b""
    value += struct.pack(">i", 10_000) + struct.pack(">i", 0) * 2
    entry = decode(b"\0\2\0\1g", value)
    assert isinstance(entry, GroupEntry)
    assert entry.metadata is not None
    assert entry.metadata.state_since_ms == (77 if version >= 2 else -1)
    (member,) = entry.metadata.members
    assert member.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)
    assert member.instance_id is None


def test_newer_kinds_are_skipped() -> None:
    assert decode(b"\0\x0fwhatever", b"\xff") == UnknownEntry(15)


@pytest.mark.parametrize(
    "record", [offset_record("g", "t", 1, OFFSET), group_record("g", METADATA)]
)
def test_every_truncation_is_an_error(record: tuple[bytes, bytes]) -> None:
    key, value = record
    for size in range(len(key)):
        with pytest.raises(CorruptCoordinatorRecord):
            decode(key[:size], value)
    for size in range(len(value)):
        with pytest.raises(CorruptCoordinatorRecord):
            decode(key, value[:size])
    with pytest.raises(CorruptCoordinatorRecord):
        decode(key + b"x", value)
    with pytest.raises(CorruptCoordinatorRecord):
        decode(key, value + b"x")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\xff\xff\0\1g", b""),  # negative key version
        (b"\0\1\xff\xff\0\1t\0\0\0\1", None),  # null group
        (b"\0\1\0\1\xff\0\1t\0\0\0\1", None),  # not UTF-8
        (b"\0\1\0\1g\0\1t\0\0\0\1", b"\0\5"),  # a value version from the future
        (b"\0\2\0\1g", b"\0\4"),
        (b"\0\2\0\1g", struct.pack(">h", 3) + string("c") + struct.pack(">i", 1) + b"\xff" * 4
         + struct.pack(">qi", 0, 1 << 30)),  # more members than bytes
        (b"\0\2\0\1g", struct.pack(">h", 3) + string("c") + struct.pack(">i", 1) + b"\xff" * 4
         + struct.pack(">qi", 0, -1)),
    ],
)  # fmt: skip
def test_damage(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptCoordinatorRecord):
        decode(key, value)


def test_a_string_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CorruptCoordinatorRecord):
        offset_record("g" * 40_000, "t", 0, None)
