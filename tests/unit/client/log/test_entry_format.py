"""Entries: batches and internal entries."""

from __future__ import annotations

import pytest

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, Offset
from client.log.entry_format import (
    MAGIC_POSITION,
    batch_headers,
    first_offset,
    has_transactions,
    is_internal,
    next_offset,
    open_internal,
    seal_internal,
    take_batches,
)
from client.wire.kafka.batches.records import Record, build_batch, parse_header

BATCH = build_batch([Record(b"k", b"v", 10)], base_offset=Offset(70), leader_epoch=LeaderEpoch(3))


def test_internal_entries_round_trip() -> None:
    data = seal_internal(Offset(12), LeaderEpoch(4), 9, b"body")
    assert is_internal(data)
    entry = open_internal(data)
    assert (entry.log_end_offset, entry.leader_epoch, entry.type) == (12, 4, 9)
    assert bytes(entry.body) == b"body"
    assert first_offset(data) == 12


def test_both_kinds_can_be_read_as_a_batch_prefix() -> None:
    internal = seal_internal(Offset(12), LeaderEpoch(4), 1, b"x" * 60)
    header = parse_header(internal)
    assert (header.base_offset, header.size, header.leader_epoch) == (12, len(internal), 4)
    assert header.magic not in (0, 1, 2)
    assert not is_internal(BATCH)
    assert first_offset(BATCH) == 70


@pytest.mark.parametrize("at", [5, 9, 16, 18, 21, 23])
def test_damaged_internal_entries_are_refused(at: int) -> None:
    data = bytearray(seal_internal(Offset(12), LeaderEpoch(4), 1, b"body"))
    data[at] ^= 0x01
    if at == 5:  # outside the checksum, like a batch's base offset
        assert open_internal(data).log_end_offset != 12
        return
    with pytest.raises(LogCorrupt):
        open_internal(data)


def test_truncated_entries_are_refused() -> None:
    with pytest.raises(LogCorrupt):
        open_internal(b"123")
    with pytest.raises(LogCorrupt):
        first_offset(b"123")
    with pytest.raises(LogCorrupt):
        batch_headers(b"")
    with pytest.raises(LogCorrupt):
        batch_headers(BATCH[:-1])


def test_an_entry_may_hold_several_batches() -> None:
    second = build_batch([Record(None, b"w", 1)] * 2, base_offset=Offset(71))
    found = batch_headers(BATCH + second)
    assert [(at, header.base_offset) for at, header in found] == [(0, 70), (len(BATCH), 71)]


def test_where_entries_begin_and_end() -> None:
    first = build_batch([Record(None, b"v")] * 3, base_offset=Offset(10))
    second = build_batch([Record(None, b"v")] * 2, base_offset=Offset(20), transactional=True)
    entry = first + second
    assert not is_internal(entry)
    assert (first_offset(entry), next_offset(entry)) == (10, 22)
    assert has_transactions(entry)
    assert not has_transactions(first)
    internal = seal_internal(Offset(12), LeaderEpoch(4), 9, b"body")
    assert first_offset(internal) == next_offset(internal) == 12
    for damaged in (b"", entry[:-1]):
        with pytest.raises(LogCorrupt):
            next_offset(damaged)
        with pytest.raises(LogCorrupt):
            has_transactions(damaged)


def three_batches() -> tuple[memoryview, list[int]]:
    """Offsets 10 to 12, 13, and behind a gap 20 to 21."""
    parts = [
        build_batch([Record(None, b"v")] * 3, base_offset=Offset(10)),
        build_batch([Record(None, bytes(100))], base_offset=Offset(13)),
        build_batch([Record(None, b"v")] * 2, base_offset=Offset(20)),
    ]
    return memoryview(b"".join(parts)), [len(part) for part in parts]


@pytest.mark.parametrize(
    ("offset", "limit", "count_max", "taken", "next_offset", "stopped_at", "is_full"),
    [
        (0, 99, 9, (0, 3), 22, None, False),
        (12, 22, 9, (0, 3), 22, None, False),
        (13, 22, 9, (1, 3), 22, None, False),
        (15, 22, 9, (2, 3), 22, None, False),
        (22, 99, 9, (0, 0), 22, None, False),
        (10, 21, 9, (0, 2), 14, 20, False),
        (10, 13, 9, (0, 1), 13, 13, False),
        (10, 12, 9, (0, 0), 10, 10, False),
        (10, 99, 2, (0, 2), 14, 20, True),
        (10, 13, 1, (0, 1), 13, 13, True),
    ],
)
def test_a_reader_takes_whole_batches_up_to_its_limits(
    offset: int,
    limit: int,
    count_max: int,
    taken: tuple[int, int],
    next_offset: int,
    stopped_at: int | None,
    is_full: bool,
) -> None:
    payload, sizes = three_batches()
    found = take_batches(
        payload, Offset(offset), Offset(limit), 1 << 20, count_max, at_least_one=True
    )
    first, end = taken
    expected = bytes(payload[sum(sizes[:first]) : sum(sizes[:end])])
    assert b"".join(found.batches) == expected
    assert [len(one) for one in found.batches] == sizes[first:end]
    assert found[1:] == (next_offset, len(expected), stopped_at, is_full)


def test_a_reader_takes_no_more_bytes_than_it_may() -> None:
    payload, sizes = three_batches()

    def taken(size_max: int, *, at_least_one: bool) -> tuple[int, int | None, bool]:
        found = take_batches(payload, Offset(0), Offset(99), size_max, 9, at_least_one=at_least_one)
        return len(found.batches), found.stopped_at, found.is_full

    assert taken(sum(sizes), at_least_one=False) == (3, None, False)
    assert taken(sum(sizes) - 1, at_least_one=False) == (2, 20, True)
    assert taken(sizes[0], at_least_one=False) == (1, 13, True)
    assert taken(sizes[0] - 1, at_least_one=False) == (0, 10, True)
    assert taken(1, at_least_one=True) == (1, 13, True)


def test_a_reader_takes_nothing_of_what_is_no_sequence_of_batches() -> None:
    payload, sizes = three_batches()
    whole = bytes(payload[: sizes[0]])
    strange = bytearray(payload)
    strange[MAGIC_POSITION] = 1
    cut = [payload[:5], payload[:26], payload[:60], payload[:-1]]
    for damaged in (b"", *cut, *(whole + bytes(some) for some in cut), strange):
        with pytest.raises(LogCorrupt):
            take_batches(memoryview(damaged), Offset(0), Offset(99), 1 << 20, 9, at_least_one=True)
