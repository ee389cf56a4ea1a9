"""The partition of a key is the one that every Kafka client computes."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as theirs
from hypothesis import given
from hypothesis import strategies as st

from client.wire.kafka.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_cases_of_kafkas_own_test(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of(key, 10) == (expected & 0x7FFFFFFF) % 10


@given(st.binary(max_size=40))
def test_it_is_the_hash_of_other_clients(data: bytes) -> None:
    assert murmur2(data) == theirs(data) & 0xFFFFFFFF
