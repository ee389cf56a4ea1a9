"""The index of a ledger's aborted transactions: what a range asks of it, and its bytes."""

from __future__ import annotations

import struct

import pytest

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset, ProducerId
from client.log.aborted_transactions import (
    AbortedBlock,
    AbortedTransaction,
    BlockRef,
    LedgerAborted,
    decode_index,
    index_run,
)
from client.log.segment import Segment, SegmentFacts, SnapshotPlace, TransactionFacts


def entry(first: int, last: int, pid: int = 1) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(pid), Offset(first), Offset(last))


def build(count: int, block_entries: int) -> tuple[LedgerAborted, dict[EntryId, AbortedBlock]]:
    """Return an index of [0, 1], [2, 3] and so on, and its blocks."""
    index, blocks = LedgerAborted(), {}
    for number in range(count):
        index.add(entry(2 * number, 2 * number + 1), Offset(2 * number + 2))
        if len(index.rest) == block_entries:
            entry_id = EntryId(10 * len(blocks))
            blocks[entry_id] = index.on_block_written(entry_id)
    return index, blocks


@pytest.mark.parametrize("count", range(8))
@pytest.mark.parametrize("block_entries", [1, 2, 3])
def test_a_range_finds_what_it_touches_and_reads_no_other_block(
    count: int, block_entries: int
) -> None:
    index, blocks = build(count, block_entries)
    assert len(index) == count
    every = [entry(2 * number, 2 * number + 1) for number in range(count)]
    for start in range(2 * count + 1):
        for end in range(start, 2 * count + 2):
            found = [one for one in every if one.last_offset >= start and one.first_offset < end]
            wanted = index.wanted(Offset(start), Offset(end))
            others = [block for at, block in blocks.items() if at not in wanted]
            assert not any(block.within(Offset(start), Offset(end)) for block in others)
            only = {at: blocks[at] for at in wanted}
            assert index.within(Offset(start), Offset(end), only) == found


@pytest.mark.parametrize("count", range(6))
def test_its_bytes(count: int) -> None:
    index, blocks = build(count, 2)
    data = index.encode()
    found, rest = decode_index(memoryview(data + b"rest"))
    assert bytes(rest) == b"rest"
    assert found.refs == index.refs
    assert found.encode() == data
    assert found.rest.stable_offset == index.rest.stable_offset
    whole = found.within(Offset(0), Offset(99), blocks)
    assert whole == index.within(Offset(0), Offset(99), blocks)


def test_it_stays_small() -> None:
    assert len(build(20_000, 1_000)[0].encode()) < 1_000


def test_damage_is_refused() -> None:
    data = build(5, 2)[0].encode()
    for size in range(len(data)):
        with pytest.raises(LogCorrupt):
            decode_index(memoryview(data[:size]))
    empty = AbortedBlock().encode()
    good, later = BlockRef(EntryId(3), 2, Offset(1), Offset(9)), entry(2, 9)
    bad = [
        [good, good],
        [good._replace(aborted_count=0)],
        [good._replace(entry_id=EntryId(-1))],
        [good._replace(first_min=Offset(9))],
        [good._replace(first_min=Offset(-1))],
        [good, good._replace(entry_id=EntryId(4))],
    ]
    for refs in bad:
        rows = b"".join(struct.pack(">qiqq", *ref) for ref in refs)
        with pytest.raises(LogCorrupt, match="after"):
            decode_index(memoryview(struct.pack(">i", len(refs)) + rows + empty))
    block = AbortedBlock()
    block.append(later, Offset(10))
    with pytest.raises(LogCorrupt, match="after block"):
        decode_index(memoryview(LedgerAborted([good], block).encode()))
    with pytest.raises(LogCorrupt, match="cannot list"):
        decode_index(memoryview(struct.pack(">i", -1) + empty))


def segment(number: int, *, stable: int, aborted: int = 0, is_sealed: bool = True) -> Segment:
    """Ten records, from ten times its number on."""
    place = SnapshotPlace(LedgerId(number), EntryId(5)) if aborted else None
    transactions = TransactionFacts(True, aborted, place, Offset(stable))
    facts = SegmentFacts(Offset(10 * number + 9), 100, 5, transactions)
    base = Offset(10 * number)
    return Segment(LedgerId(number), base, LeaderEpoch(0), 0, facts if is_sealed else None)


def plain(number: int) -> Segment:
    facts = SegmentFacts(Offset(10 * number + 9), 100, 5)
    return Segment(LedgerId(number), Offset(10 * number), LeaderEpoch(0), 0, facts)


def test_a_range_goes_on_to_the_segments_that_decide_it() -> None:
    spanning = [
        segment(0, stable=3, aborted=1),
        segment(1, stable=3),
        segment(2, stable=25, aborted=2),
        segment(3, stable=40, aborted=3),
        plain(4),
    ]
    one, three, four = spanning[0], spanning[2], spanning[3]
    assert index_run(spanning, Offset(3)) == ([one], True)
    assert index_run(spanning, Offset(10)) == ([one, three], True)
    assert index_run(spanning[1:], Offset(20)) == ([three], True)
    assert index_run(spanning, Offset(26)) == ([one, three, four], True)
    assert index_run(spanning, Offset(50)) == ([one, three, four], True)
    assert index_run(spanning[:2], Offset(10)) == ([one], False), "not decided in them"
    assert index_run([plain(0)], Offset(10)) == ([], True)
    written = segment(1, stable=0, is_sealed=False)
    assert index_run([one, written], Offset(10)) == ([one], False), "the leader knows"
