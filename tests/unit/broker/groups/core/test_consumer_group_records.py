"""The records of groups of the consumer protocol: Kafka's own bytes, and bytes that are wrong."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.coordinator.core.coordinator_types import CorruptCoordinatorRecord, LogRecord
from broker.groups.core.consumer_group_records import (
    ConsumerGroupEntry,
    Current,
    GroupEpoch,
    Matches,
    MemberState,
    Part,
    PartValue,
    Subscriber,
    TargetEpoch,
    encode,
)
from broker.groups.core.offset_records import decode

TOPIC = UUID(bytes=bytes(range(1, 17)))
ID = "0102030405060708090a0b0c0d0e0f10"

# Printed by kafka-group-coordinator 4.4.0: MessageUtil.toCoordinatorTypePrefixedBytes of the key,
# toVersionPrefixedBytes of the value.
OF_KAFKA: list[tuple[Part, str, PartValue, str, str]] = [
    (
        Part.GROUP,
        "",
        GroupEpoch(7, 0x1122334455667788),
        "0003000167",
        "0000000000070100081122334455667788",
    ),
    (Part.GROUP, "", GroupEpoch(7), "0003000167", "00000000000700"),
    (
        Part.MEMBER,
        "m",
        Subscriber("i", "r", "c", "/h", ("a", "b"), "x.*", 60_000, "range"),
        "000500016700016d",
        "0000026902720263032f68030261026204782e2a0000ea600672616e676500",
    ),
    (
        Part.TARGET_EPOCH,
        "",
        TargetEpoch(7, 0x1122),
        "0006000167",
        "0000000000070100080000000000001122",
    ),
    (
        Part.TARGET,
        "m",
        {TOPIC: frozenset((0, 5))},
        "000700016700016d",
        f"000002{ID}03000000000000000500" + "00",
    ),
    (
        Part.CURRENT,
        "m",
        Current(7, 6, MemberState.UNREVOKED, {TOPIC: {0: 3, 5: 7}}, {TOPIC: {2: 4}}),
        "000800016700016d",
        f"000000000007000000060102{ID}03000000000000000501000903000000030000000702{ID}"
        "0200000002010005020000000400",
    ),
    (
        Part.PATTERN,
        "x.*",
        Matches(("xa", "xb"), 10),
        "00100001670003782e2a",
        "0000030378610378620000000000000000000000000000000a00",
    ),
]


@pytest.mark.parametrize(("part", "name", "value", "key_hex", "value_hex"), OF_KAFKA)
def test_bytes_are_kafkas(
    part: Part, name: str, value: PartValue, key_hex: str, value_hex: str
) -> None:
    entry = ConsumerGroupEntry("g", part, name, value)
    record = LogRecord(bytes.fromhex(key_hex), bytes.fromhex(value_hex))
    assert encode(entry) == record
    assert decode(*record) == entry


@pytest.mark.parametrize("part", Part)
def test_a_tombstone_has_no_value(part: Part) -> None:
    name = "" if part in (Part.GROUP, Part.TARGET_EPOCH) else "m"
    entry = ConsumerGroupEntry("g", part, name, None)
    record = encode(entry)
    assert record.value is None
    assert decode(*record) == entry


def test_a_member_of_kafka_without_a_pattern_may_have_an_empty_one() -> None:
    value = bytes.fromhex("000000000263032f680101ffffffff0000")
    entry = decode(bytes.fromhex("000500016700016d"), value)
    assert isinstance(entry, ConsumerGroupEntry)
    assert entry.value == Subscriber(None, None, "c", "/h", (), None, -1, None)


def test_partitions_without_epochs_count_as_assigned_before_all_others() -> None:
    value = bytes.fromhex(f"000000000007000000060002{ID}0200000005000100")
    entry = decode(bytes.fromhex("000800016700016d"), value)
    assert isinstance(entry, ConsumerGroupEntry)
    assert entry.value == Current(7, 6, MemberState.STABLE, {TOPIC: {5: 0}}, {})


def test_tags_of_newer_releases_are_passed_over() -> None:
    value = bytes.fromhex("000000000007" + "02" + "0500" + "0602abcd")
    entry = decode(bytes.fromhex("0003000167"), value)
    assert isinstance(entry, ConsumerGroupEntry)
    assert entry.value == GroupEpoch(7)


@pytest.mark.parametrize(
    ("key_hex", "value_hex"),
    [
        ("00030001", "00000000000700"),
        ("000300016700", "00000000000700"),
        ("0003000167", "00010000000700"),
        ("0003000167", "0000000000"),
        ("0003000167", "0000000000070000"),
        ("000800016700016d", "0000000000070000000609010100"),
        ("000700016700016d", "0000ff"),
        ("000800016700016d", f"000000000007000000060002{ID}02000000050100050300000001000000020100"),
        ("000500016700016d", "0000000000026303"),
    ],
)
def test_bytes_that_do_not_follow_the_layout_are_refused(key_hex: str, value_hex: str) -> None:
    with pytest.raises(CorruptCoordinatorRecord):
        decode(bytes.fromhex(key_hex), bytes.fromhex(value_hex))
