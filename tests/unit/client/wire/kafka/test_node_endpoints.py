"""Addresses of leaders fit the tag section that Produce and Fetch answers end with."""

from __future__ import annotations

from client.wire.buffer import Reader
from client.wire.kafka.node_endpoints import NodeEndpoint, endpoint_tags


def test_the_section_is_one_tag_that_says_its_length() -> None:
    tags = endpoint_tags([NodeEndpoint(4, "broker-4", 9095, None), NodeEndpoint(5, "h", 1, "r")])
    reader = Reader(memoryview(tags))
    assert reader.count_tags() == 1
    assert reader.uvarint() == 0
    assert reader.uvarint() == len(tags) - reader.position


def test_nobody_is_a_list_of_none() -> None:
    assert endpoint_tags([]) == b"\x01\x00\x01\x01"
