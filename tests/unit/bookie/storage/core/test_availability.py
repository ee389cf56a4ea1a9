"""The run-length encoding of entry lists, against a decoder written from its description."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from bookie.storage.core.availability import encode_availability


def decode(data: bytes) -> list[int]:
    version, group_count = struct.unpack_from(">ii", data)
    assert version == 0
    assert len(data) == 64 + 24 * group_count
    ids: list[int] = []
    for n in range(group_count):
        first, last, size, period = struct.unpack_from(">qqii", data, 64 + 24 * n)
        starts = range(first, last + 1, period) if period else [first]
        for start in starts:
            ids += range(start, start + size)
    return ids


@given(st.sets(st.integers(0, 60)).map(sorted))
def test_round_trip(ids: list[int]) -> None:
    assert decode(encode_availability(ids)) == ids


def test_a_striped_ledger_is_one_group() -> None:
    data = encode_availability([n for n in range(3000) if n % 3 != 2])
    assert len(data) == 64 + 24
    assert struct.unpack_from(">qqii", data, 64) == (0, 2997, 2, 3)


def test_empty() -> None:
    assert encode_availability([]) == bytes(64)
