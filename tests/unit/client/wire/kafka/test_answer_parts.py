"""Counts and topics in both kinds of versions; addresses of leaders fit the section of tags."""

from __future__ import annotations

from uuid import UUID

import pytest

from client.wire.buffer import Reader
from client.wire.kafka.answer_parts import NodeEndpoint, count_bytes, endpoint_tags, topic_bytes


@pytest.mark.parametrize("count", [0, 1, 126, 127, 20_000])
def test_a_count_is_read_back_in_both_kinds_of_versions(count: int) -> None:
    assert Reader(memoryview(count_bytes(count, flexible=False))).int32() == count
    assert Reader(memoryview(count_bytes(count, flexible=True))).uvarint() == count + 1


def test_a_topic_is_its_name_in_either_layout_or_its_id() -> None:
    assert topic_bytes("té", flexible=False) == b"\x00\x03t\xc3\xa9"
    assert topic_bytes("té", flexible=True) == b"\x04t\xc3\xa9"
    assert topic_bytes(UUID(int=7), flexible=True) == b"\x00" * 15 + b"\x07"


def test_the_section_is_one_tag_that_says_its_length() -> None:
    tags = endpoint_tags([NodeEndpoint(4, "broker-4", 9095, None), NodeEndpoint(5, "h", 1, "r")])
    reader = Reader(memoryview(tags))
    assert reader.count_tags() == 1
    assert reader.uvarint() == 0
    assert reader.uvarint() == len(tags) - reader.position


def test_nobody_is_a_list_of_none() -> None:
    assert endpoint_tags([]) == b"\x01\x00\x01\x01"
