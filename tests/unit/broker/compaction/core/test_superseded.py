"""Bits of superseded offsets, beside a set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.compaction.core.key_map import Superseded
from client.ids import Offset

OFFSETS = st.integers(0, 60)


@given(st.sets(OFFSETS), OFFSETS, OFFSETS, OFFSETS, OFFSETS)
def test_it_knows_what_a_set_knows(
    noted: set[int], start: int, end: int, first: int, last: int
) -> None:
    superseded = Superseded(Offset(start), Offset(end))
    for offset in noted:
        superseded.add(Offset(offset))
    known = {offset for offset in noted if start <= offset < end}
    for offset in range(start, end):
        assert superseded.has(Offset(offset)) == (offset in known)
    counted = superseded.count(Offset(first), Offset(last))
    assert counted == sum(first <= offset < last for offset in known)
    assert superseded.size_bytes == (max(0, end - start) + 7) // 8
