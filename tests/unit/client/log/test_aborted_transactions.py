"""Blocks of aborted transactions: their bytes, and what a range needs of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, Offset, ProducerId
from client.log.aborted_transactions import (
    ABORTED_TYPE,
    AbortedBlock,
    AbortedTransaction,
    aborted_within,
    decode_block,
    open_block,
    seal_block,
)
from client.log.entry_format import is_internal, open_internal, seal_internal
from client.log.snapshot import snapshot_points


def entry(first: int, last: int, pid: int = 1) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(pid), Offset(first), Offset(last))


def block(*entries: AbortedTransaction, stable: int = 0) -> AbortedBlock:
    made = AbortedBlock()
    for item in entries:
        made.append(item, Offset(0))
    made.stable_offset = Offset(stable)
    return made


def content(made: AbortedBlock) -> list[AbortedTransaction]:
    return [made[at] for at in range(len(made))]


def test_the_layout() -> None:
    body = block(entry(3, 9, pid=7), stable=10).encode()
    assert body == struct.pack(">hqiqqq", 1, 10, 1, 7, 3, 9)


@pytest.mark.parametrize("entries", [(), (entry(0, 1),), (entry(4, 5), entry(0, 6, 2))])
def test_what_is_sealed_is_opened(entries: tuple[AbortedTransaction, ...]) -> None:
    data = seal_block(block(*entries, stable=77), Offset(50), LeaderEpoch(3))
    assert is_internal(data)
    assert open_internal(data)[:3] == (50, 3, ABORTED_TYPE)
    opened = open_block(data)
    assert content(opened) == list(entries)
    assert opened.stable_offset == 77
    assert opened.first_min == min((item.first_offset for item in entries), default=2**63 - 1)
    assert snapshot_points(data) == (), "searches do not take it for a snapshot"


def test_bytes_behind_a_block_are_the_callers() -> None:
    made, rest = decode_block(memoryview(block(entry(0, 1)).encode() + b"rest"))
    assert content(made) == [entry(0, 1)]
    assert bytes(rest) == b"rest"


def raw(*rows: tuple[int, int, int], count: int | None = None, version: int = 1) -> bytes:
    head = struct.pack(">hqi", version, 0, len(rows) if count is None else count)
    return head + b"".join(struct.pack(">qqq", *row) for row in rows)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        raw()[:-1],
        raw(version=2),
        raw(count=1),
        raw((1, 2, 3), count=-1),
        raw((1, 2, 3), count=2),
        raw((1, 3, 3)),
        raw((1, -1, 3)),
        raw((1, 4, 5), (2, 0, 5)),
    ],
)
def test_damage_is_refused(body: bytes) -> None:
    with pytest.raises(LogCorrupt):
        decode_block(memoryview(body))


def test_other_entries_are_refused() -> None:
    with pytest.raises(LogCorrupt, match="type 1"):
        open_block(seal_internal(Offset(0), LeaderEpoch(0), 1, raw()))
    with pytest.raises(LogCorrupt, match="follow"):
        open_block(seal_internal(Offset(0), LeaderEpoch(0), ABORTED_TYPE, raw() + b"x"))


def test_a_range_and_its_borders() -> None:
    made = block(entry(10, 19))
    wanted = {(9, 10): False, (9, 11): True, (19, 20): True, (20, 30): False, (12, 14): True}
    for (start, end), found in wanted.items():
        assert bool(made.within(Offset(start), Offset(end))) is found, (start, end)


def test_a_marker_before_the_range_is_not_told() -> None:
    """It would hide the producer's next transaction, which may have been committed."""
    made = block(entry(0, 5), entry(9, 12))
    assert made.within(Offset(6), Offset(20)) == [entry(9, 12)]


def test_later_blocks_are_read_until_enough_is_stable() -> None:
    read: list[int] = []

    def ledgers() -> list[AbortedBlock]:
        return [
            block(entry(4, 5), stable=2),
            block(entry(2, 8, 2), entry(9, 10), stable=11),
            block(entry(12, 13), stable=14),
        ]

    def one_by_one() -> Iterator[AbortedBlock]:
        for number, made in enumerate(ledgers()):
            read.append(number)
            yield made

    assert aborted_within(one_by_one(), Offset(3), Offset(6)) == [entry(4, 5), entry(2, 8, 2)]
    assert read == [0, 1]
    assert aborted_within(ledgers(), Offset(0), Offset(2)) == []
    assert aborted_within(ledgers(), Offset(3), Offset(5)) == [entry(4, 5), entry(2, 8, 2)], (
        "a marker behind the range does not mean that those behind it have nothing to do with it"
    )
