"""What the log says of share groups, byte for byte, and what is refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.partition.core.shares.share_updates import (
    GONE,
    RecordState,
    ShareUpdate,
    StoredRange,
    decode_updates,
    encode_updates,
    open_updates,
    seal_updates,
)
from client.errors import LogCorrupt
from client.ids import LeaderEpoch, Offset
from client.log.entry_format import first_offset, is_internal, next_offset

UPDATE = ShareUpdate(
    "g",
    UUID(int=1),
    2,
    Offset(3),
    [
        StoredRange(Offset(4), Offset(6), RecordState.AVAILABLE, 1),
        StoredRange(Offset(7), Offset(7), RecordState.ACKNOWLEDGED, 0),
    ],
)


def test_the_bytes() -> None:
    assert encode_updates([UPDATE]).hex() == (
        "0001" "00000001"
        "0001" "67" "00000000000000000000000000000001" "00000002" "0000000000000003" "00000002"
        "0000000000000004" "0000000000000006" "00" "0001"
        "0000000000000007" "0000000000000007" "02" "0000"
    )  # fmt: skip


def test_all_comes_back() -> None:
    updates = [UPDATE, ShareUpdate("ü" * 100, UUID(int=7), 0, GONE, [])]
    assert decode_updates(memoryview(encode_updates(updates))) == updates
    assert decode_updates(memoryview(encode_updates([]))) == []
    assert UPDATE.size >= len(encode_updates([UPDATE])) - 10


def test_an_entry_stands_at_the_end_of_the_log() -> None:
    entry = seal_updates([UPDATE], Offset(99), LeaderEpoch(5))
    assert is_internal(entry)
    assert first_offset(entry) == next_offset(entry) == 99
    assert open_updates(entry) == [UPDATE]


def test_every_truncation_is_an_error() -> None:
    body = encode_updates([UPDATE])
    for size in range(len(body)):
        with pytest.raises(LogCorrupt):
            decode_updates(memoryview(body[:size]))


@pytest.mark.parametrize(
    ("at", "byte"),
    [(1, 9), (-3, 1), (-3, 5), (-3, 77), (-4, 0)],
    ids=["version", "acquired", "no state", "no state either", "ends before it begins"],
)
def test_what_makes_no_sense_is_an_error(at: int, byte: int) -> None:
    body = bytearray(encode_updates([UPDATE]))
    body[at] = byte
    with pytest.raises(LogCorrupt):
        decode_updates(memoryview(body))


def test_nothing_may_follow() -> None:
    with pytest.raises(LogCorrupt):
        decode_updates(memoryview(encode_updates([UPDATE]) + b"\0"))
