"""What transactions leave in a ledger: blocks, snapshots, facts."""

from __future__ import annotations

import tracemalloc

import pytest

from broker.partition.core.open_transactions import SegmentTransactions
from client.ids import EntryId, LedgerId, Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction, LedgerAborted, decode_index
from client.log.segment import SnapshotPlace, TransactionFacts

PLACE = SnapshotPlace(LedgerId(7), EntryId(9))


def aborted(first: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(1), Offset(first), Offset(first + 1))


def filled(count: int) -> SegmentTransactions:
    segment = SegmentTransactions(2)
    for number in range(count):
        segment.is_transactional = True
        segment.on_aborted(aborted(2 * number), Offset(2 * number + 2))
        if segment.is_block_due:
            segment.on_block_written(EntryId(10 + number))
    return segment


@pytest.mark.parametrize("count", range(6))
def test_blocks_are_written_when_they_are_due(count: int) -> None:
    segment = filled(count)
    assert len(segment.blocks) == len(segment.aborted.refs) == count // 2
    assert len(segment.aborted.rest) == count % 2
    every = [aborted(2 * number) for number in range(count)]
    assert segment.within(Offset(0), Offset(99)) == every
    assert segment.within(Offset(2), Offset(4)) == every[1:2]


def test_only_the_first_snapshot_speaks_of_earlier_ledgers() -> None:
    segment = filled(1)
    segment.earlier = {LedgerId(3): LedgerAborted()}
    assert segment.snapshot(is_first=True).earlier == segment.earlier
    assert segment.snapshot(is_first=False).earlier == {}
    assert SegmentTransactions(2).has_state is False
    assert segment.has_state


def test_it_goes_on_from_a_snapshot() -> None:
    segment = filled(3)
    other = SegmentTransactions(2)
    other.restore(segment.snapshot(is_first=False))
    assert other.is_transactional
    assert len(other.aborted) == 3


def test_facts() -> None:
    segment = SegmentTransactions(2)
    segment.stable_at = Offset(10)
    assert segment.facts(Offset(10), PLACE) is None, "nothing of a transaction"
    segment.stable_at = Offset(4)
    expected = TransactionFacts(False, 0, None, Offset(4))
    assert segment.facts(Offset(10), PLACE) == expected, "one of before is open still"
    segment = filled(3)
    segment.stable_at = Offset(6)
    assert segment.facts(Offset(6), PLACE) == TransactionFacts(True, 3, PLACE, Offset(6))


def test_a_hundred_thousand_aborted_ones_take_24_bytes_each_and_a_snapshot_hardly_any() -> None:
    """What `ops/MEMORY.md` counts; there are as many in a log as segments hold."""
    count, block_entries = 100_000, 1_000
    segment = SegmentTransactions(block_entries)
    tracemalloc.start()
    try:
        for number in range(count):
            segment.on_aborted(aborted(2 * number), Offset(2 * number + 2))
            if segment.is_block_due:
                segment.on_block_written(EntryId(number))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(segment.aborted) == count
    assert kept < 30 * count  # arrays have some room to grow in
    assert len(segment.aborted.encode()) < 50 * count / block_entries


@pytest.mark.slow
def test_of_a_million_aborted_ones_a_read_needs_the_blocks_that_it_touches() -> None:
    """One of them began before all others and is aborted last: it is in every read's range."""
    count, block_entries, read = 1_000_000, 1_000, 400
    segment = SegmentTransactions(block_entries)
    for number in range(1, count):
        segment.on_aborted(aborted(2 * number), Offset(0))
        if segment.is_block_due:
            segment.on_block_written(EntryId(number))
    oldest = AbortedTransaction(ProducerId(2), Offset(0), Offset(2 * count))
    segment.on_aborted(oldest, Offset(2 * count + 1))
    segment.on_block_written(EntryId(count))
    data = segment.aborted.encode()
    assert len(data) < 32 * 1024, "what each snapshot holds of them"
    index, rest = decode_index(memoryview(data))
    assert not rest
    assert len(index) == count
    for start in (0, 2 * 999, count, 2 * count - read):
        wanted = index.wanted(Offset(start), Offset(start + read))
        assert len(wanted) <= 3, "two that the range is in at most, and that of the last marker"
        blocks = {entry_id: segment.blocks[entry_id] for entry_id in wanted}
        found = index.within(Offset(start), Offset(start + read), blocks)
        first = max(1, start // 2)
        assert found[:-1] == [aborted(2 * one) for one in range(first, start // 2 + read // 2)]
        assert found[-1] == oldest
